package core

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Bounds on what a secret's source may give.
const (
	maxSecret     = 64 << 10 // bytes; larger than any key or certificate chain in use
	secretPatient = 10 * time.Second
)

// masking is what is masked in all that this process prints, stores and logs. It is
// made at the first word that is printed, or when it is asked for, whichever comes
// first, and again when the configuration is there.
type masking struct {
	mu       sync.Mutex
	made     bool           // guarded by mu
	by       *config.Config // guarded by mu; what it was made by; nil before load
	secrets  *sink.Secrets  // guarded by mu
	inject   []string       // guarded by mu; K=V of configured secrets
	warnings []sink.Warning // guarded by mu; not told so far
	err      error          // guarded by mu; why a configured secret is not masked
	told     bool           // guarded by mu; the user knows of err
}

// Known returns the secrets that there are to mask.
func (a *App) Known() *sink.Secrets {
	m := &a.masking
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.made || m.by != a.Cfg {
		a.makeMasks(m)
	}
	return m.secrets
}

// makeMasks needs m.mu. It prints nothing.
func (a *App) makeMasks(m *masking) {
	m.made, m.by, m.inject, m.err = true, a.Cfg, nil, nil
	var list []sink.Secret
	configured, file := a.configuredSecrets()
	for _, s := range configured {
		value, err := a.secretValue(a.ctx, s, file)
		m.err = cmp.Or(m.err, err)
		list = append(list, sink.Secret{Name: s.Name, Value: value})
		if s.Inject && value != "" {
			m.inject = append(m.inject, s.Name+"="+value)
		}
	}
	if a.Cfg != nil {
		list = append(list, secretsOf(a.Cfg.Env.Set)...)
	}
	if a.Cfg == nil {
		list = append(list, secretsOf(a.givenEnv())...)
	}
	var err error
	m.secrets, m.warnings, err = sink.NewSecrets(append(list, sink.FromEnviron(a.Environ)...))
	if err != nil {
		m.err = cmp.Or(m.err, exit.Misuse("", "%v", err))
	}
}

// configuredSecrets are those of the configuration, or of what there is of one that
// is not loaded.
func (a *App) configuredSecrets() (list []config.Secret, file string) {
	if a.Cfg != nil {
		return a.Cfg.Secrets, a.Cfg.File
	}
	src := a.configSource()
	for i, arg := range a.args {
		if name, ok := strings.CutPrefix(arg, "--config="); ok && src.File == "" {
			src.File = name
		} else if arg == "--config" && src.File == "" && i+1 < len(a.args) {
			src.File = a.args[i+1]
		}
	}
	list, file = config.Secrets(src)
	if src.File != "" { // which may not be a configuration at all
		src.File = ""
		others, _ := config.Secrets(src)
		list = append(list, others...)
	}
	return list, file
}

// Secrets makes ready what has to be masked: the configured secrets, values
// given under names that look like secrets, and the credentials in this
// process's environment. It fails where a configured secret is not to be had: for
// what commands have to do with. What cannot be masked is warned of.
func (a *App) Secrets() error {
	a.Known()
	m := &a.masking
	m.mu.Lock()
	warnings, err := m.warnings, m.err
	m.warnings, m.told = nil, true
	m.mu.Unlock()
	if err != nil {
		return err
	}
	for _, w := range warnings {
		a.Note("warning: " + w.String())
	}
	return nil
}

// Unmasked tells of a configured secret that is not masked, where that has not kept
// the command from doing what it does.
func (a *App) Unmasked() {
	m := &a.masking
	m.mu.Lock()
	err, told := m.err, m.told
	m.told = true
	m.mu.Unlock()
	if err != nil && !told && a.Cfg != nil {
		a.Note("warning: it is not masked: " + err.Error())
	}
}

// injected are the configured secrets that commands get as variables.
func (a *App) injected() []string {
	a.Known()
	a.masking.mu.Lock()
	defer a.masking.mu.Unlock()
	return a.masking.inject
}

// givenEnv is what --env says, before it is understood, and if it never is.
func (a *App) givenEnv() (set []string) {
	for i, arg := range a.args {
		if kv, ok := strings.CutPrefix(arg, "--env="); ok {
			set = append(set, kv)
		} else if arg == "--env" && i+1 < len(a.args) {
			set = append(set, a.args[i+1])
		}
	}
	return slices.DeleteFunc(set, func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") != ""
	})
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
func (a *App) secretValue(ctx context.Context, s config.Secret, file string) (string, error) {
	var value []byte
	var err error
	switch s.From {
	case config.FromEnv:
		return a.Getenv(s.Source), nil
	case config.FromFile:
		value, err = readSecret(s.Source)
	case config.FromCommand:
		value, err = a.secretCommand(ctx, s.Source)
	}
	if err == nil && len(value) > maxSecret {
		err = fmt.Errorf("it is longer than %d bytes", maxSecret)
	}
	if err != nil {
		return "", exit.Misuse("correct its source in "+file, "secret %s: %v", s.Name, err)
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
func (a *App) secretCommand(ctx context.Context, line string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, secretPatient, fmt.Errorf("its command took longer than %v", secretPatient))
	defer cancel()
	shell := []string{"sh", "-c", line}
	if runtime.GOOS == "windows" {
		shell = []string{"cmd", "/c", line}
	}
	cmd := osexec.CommandContext(ctx, shell[0], shell[1:]...)
	cmd.Env = a.Environ
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

// CommandEnv is what a command gets in addition to the session's own environment:
// variables passed on by name, then injected secrets, then those given.
func (a *App) CommandEnv() []string {
	var env []string
	for _, name := range a.Cfg.Env.Pass {
		for _, kv := range a.Environ {
			if strings.HasPrefix(kv, name+"=") {
				env = append(env, kv)
			}
		}
	}
	env = append(env, a.injected()...)
	return append(env, a.Cfg.Env.Set...)
}
