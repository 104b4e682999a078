package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Bounds on what a secret's source may give.
const (
	maxSecret     = 64 << 10 // bytes; larger than any key or certificate chain in use
	secretPatient = 10 * time.Second
)

// scrub masks what is known of secrets in a text that is to be printed.
func (a *app) scrub(text string) string {
	if text == "" {
		return text
	}
	return a.known().Scrub(text)
}

// known returns the secrets that there are to mask. Before the configured ones
// are loaded they are those of the environment, and what the flags say.
func (a *app) known() *sink.Secrets {
	if a.masks != nil {
		return a.masks
	}
	list := sink.FromEnviron(a.environ)
	if a.cfg != nil {
		list = append(list, secretsOf(a.cfg.Env.Set)...)
	}
	masks, _, err := sink.NewSecrets(list)
	if err != nil {
		return nil // names of variables are always fit to be shown
	}
	return masks
}

// secrets makes ready what has to be masked: the configured secrets, values
// given under names that look like secrets, and the credentials in this
// process's environment. What cannot be masked is warned of.
func (a *app) secrets(ctx context.Context) error {
	var list []sink.Secret
	for _, s := range a.cfg.Secrets {
		value, err := a.secretValue(ctx, s)
		if err != nil {
			return err
		}
		list = append(list, sink.Secret{Name: s.Name, Value: value})
		if s.Inject && value != "" {
			a.inject = append(a.inject, s.Name+"="+value)
		}
	}
	list = append(list, secretsOf(a.cfg.Env.Set)...)
	masks, warnings, err := sink.NewSecrets(append(list, sink.FromEnviron(a.environ)...))
	if err != nil {
		return misuse("", "%v", err)
	}
	a.masks = masks
	for _, w := range warnings {
		a.note("warning: " + w.String())
	}
	return nil
}

// secretsOf returns the values that are given under names of secrets.
func secretsOf(set []string) []sink.Secret {
	var list []sink.Secret
	for _, kv := range set {
		if name, value, ok := strings.Cut(kv, "="); ok && sink.SecretName(name) {
			list = append(list, sink.Secret{Name: name, Value: value})
		}
	}
	return list
}

// secretValue fetches a secret. Its errors hold nothing of the value.
func (a *app) secretValue(ctx context.Context, s config.Secret) (string, error) {
	var value []byte
	var err error
	switch s.From {
	case config.FromEnv:
		return a.getenv(s.Source), nil
	case config.FromFile:
		value, err = readSecret(s.Source)
	case config.FromCommand:
		value, err = a.secretCommand(ctx, s.Source)
	}
	if err == nil && len(value) > maxSecret {
		err = fmt.Errorf("it is longer than %d bytes", maxSecret)
	}
	if err != nil {
		return "", misuse("correct its source in "+a.cfg.File, "secret %s: %v", s.Name, err)
	}
	return strings.TrimRight(string(value), "\r\n"), nil
}

func readSecret(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxSecret+1))
}

// secretCommand runs a command of the user's own configuration on this machine.
func (a *app) secretCommand(ctx context.Context, line string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, secretPatient, fmt.Errorf("its command took longer than %v", secretPatient))
	defer cancel()
	shell := []string{"sh", "-c", line}
	if runtime.GOOS == "windows" {
		shell = []string{"cmd", "/c", line}
	}
	cmd := osexec.CommandContext(ctx, shell[0], shell[1:]...)
	cmd.Env = a.environ
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("its command: %w", err)
	}
	return out.Bytes(), nil
}

// commandEnv is what a command gets beside the session's own environment:
// variables passed on by name, then injected secrets, then those given.
func (a *app) commandEnv() []string {
	var env []string
	for _, name := range a.cfg.Env.Pass {
		for _, kv := range a.environ {
			if strings.HasPrefix(kv, name+"=") {
				env = append(env, kv)
			}
		}
	}
	env = append(env, a.inject...)
	return append(env, a.cfg.Env.Set...)
}
