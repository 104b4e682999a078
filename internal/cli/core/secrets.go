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
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Bounds on what a secret's source may give.
const (
	maxSecret     = 64 << 10 // bytes; larger than any key or certificate chain in use
	secretPatient = 10 * time.Second
)

// Secrets are what is masked in all that this process prints, stores and logs. They are
// found at the first word that is printed, or when they are asked for, whichever comes
// first, and again when the configuration is there. They may be used concurrently.
type Secrets struct {
	env   *Environment
	cfg   *Configuration
	notes *Notes
	ctx   context.Context //nolint:containedctx // of the call: what is printed may have to wait for secrets
	args  []string        // of the call

	mu       sync.Mutex
	given    map[string]string // guarded by mu; see Use; nil: their sources have the values
	found    map[string]string // guarded by mu; the values of configured secrets by name
	made     bool              // guarded by mu
	by       *config.Config    // guarded by mu; what they were found by; nil before load
	known    *sink.Secrets     // guarded by mu
	inject   []string          // guarded by mu; K=V of configured secrets
	hosted   []sandbox.Secret  // guarded by mu; configured ones that requests get, and commands do not
	warnings []sink.Warning    // guarded by mu; not told so far
	err      error             // guarded by mu; why a configured secret is not masked
	told     bool              // guarded by mu; the user knows of err
}

// Begin says what the call is. It is called before anything is printed.
func (s *Secrets) Begin(ctx context.Context, args []string) { s.ctx, s.args = ctx, args }

// Known returns the secrets that there are to mask.
func (s *Secrets) Known() *sink.Secrets {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.made || s.by != s.cfg.Config {
		s.find()
	}
	return s.known
}

// find needs mu. It prints nothing.
func (s *Secrets) find() {
	s.made, s.by, s.inject, s.hosted, s.err = true, s.cfg.Config, nil, nil, nil
	var list []sink.Secret
	s.found = map[string]string{}
	configured, file := s.configured()
	for _, one := range configured {
		value, err := s.given[one.Name], error(nil)
		if s.given == nil {
			value, err = s.valueOf(one, file)
		}
		s.found[one.Name] = value
		s.err = cmp.Or(s.err, err)
		list = append(list, sink.Secret{Name: one.Name, Value: value})
		if one.Inject && value != "" {
			s.inject = append(s.inject, one.Name+"="+value)
		}
		if len(one.Hosts) > 0 && value != "" {
			hosted := sandbox.Secret{Name: one.Name, Value: value, Hosts: one.Hosts, InQuery: one.In == config.InQuery}
			if err := hosted.Check(); err != nil {
				s.err = cmp.Or(s.err, exit.Misuse("correct its source in "+file, "%v", err))
			}
			s.hosted = append(s.hosted, hosted)
		}
	}
	if s.cfg.Loaded() {
		list = append(list, secretsOf(s.cfg.Env.Set)...)
		list = append(list, proxySecrets(s.cfg.NetworkRules)...)
	} else {
		list = append(list, secretsOf(givenEnv(s.args))...)
	}
	var err error
	s.known, s.warnings, err = sink.NewSecrets(append(list, sink.FromEnviron(s.env.All())...))
	if err != nil {
		s.err = cmp.Or(s.err, exit.Misuse("", "%v", err))
	}
}

// configured are those of the configuration, or of what there is of one that
// is not loaded.
func (s *Secrets) configured() (list []config.Secret, file string) {
	if s.cfg.Loaded() {
		return s.cfg.Secrets, s.cfg.File
	}
	src := s.cfg.source()
	for i, arg := range s.args {
		if name, ok := strings.CutPrefix(arg, "--config="); ok && src.File == "" {
			src.File = name
		} else if arg == "--config" && src.File == "" && i+1 < len(s.args) {
			src.File = s.args[i+1]
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

// Ready finds what has to be masked: the configured secrets, values
// given under names that look like secrets, and the credentials in this
// process's environment. It fails where a configured secret is not to be had: for
// what commands have to do with. What cannot be masked is warned of.
func (s *Secrets) Ready() error {
	s.Known()
	s.mu.Lock()
	warnings, err := s.warnings, s.err
	s.warnings, s.told = nil, true
	s.mu.Unlock()
	if err != nil {
		return err
	}
	for _, w := range warnings {
		s.notes.Add("warning: " + w.String())
	}
	return nil
}

// TellUnmasked tells of a configured secret that is not masked, where that has not kept
// the command from doing what it does.
func (s *Secrets) TellUnmasked() {
	s.mu.Lock()
	err, told := s.err, s.told
	s.told = true
	s.mu.Unlock()
	if err != nil && !told && s.cfg.Loaded() {
		s.notes.Add("warning: it is not masked: " + err.Error())
	}
}

// injected are the configured secrets that commands get as variables.
func (s *Secrets) injected() []string {
	s.Known()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inject
}

// Use has the values that another process has found stand for those of their sources, which are not
// asked. A configured secret without one has no value.
func (s *Secrets) Use(values map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made, s.given = false, values
	if values == nil {
		s.given = map[string]string{}
	}
}

// values are the values of the configured secrets, for a process that is to Use them.
func (s *Secrets) values() map[string]string {
	s.Known()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.found
}

// Hosted are the configured secrets that are put into requests to their hosts. Sessions know them by
// placeholders.
func (s *Secrets) Hosted() []sandbox.Secret {
	s.Known()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hosted
}

// givenEnv is what --env says, before it is understood, and if it never is.
func givenEnv(args []string) (set []string) {
	for i, arg := range args {
		if kv, ok := strings.CutPrefix(arg, "--env="); ok {
			set = append(set, kv)
		} else if arg == "--env" && i+1 < len(args) {
			set = append(set, args[i+1])
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

// valueOf fetches a secret. Its errors hold nothing of the value.
func (s *Secrets) valueOf(one config.Secret, file string) (string, error) {
	var value []byte
	var err error
	switch one.From {
	case config.FromEnv:
		return s.env.Getenv(one.Source), nil
	case config.FromFile:
		value, err = readSecret(one.Source)
	case config.FromCommand:
		value, err = secretCommand(s.ctx, one.Source, s.env.All())
	}
	if err == nil && len(value) > maxSecret {
		err = fmt.Errorf("it is longer than %d bytes", maxSecret)
	}
	if err != nil {
		return "", exit.Misuse("correct its source in "+file, "secret %s: %v", one.Name, err)
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
func secretCommand(ctx context.Context, line string, environ []string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, secretPatient, fmt.Errorf("its command took longer than %v", secretPatient))
	defer cancel()
	shell := []string{"sh", "-c", line}
	if runtime.GOOS == "windows" {
		shell = []string{"cmd", "/c", line}
	}
	cmd := osexec.CommandContext(ctx, shell[0], shell[1:]...)
	cmd.Env = environ
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
func (s *Secrets) CommandEnv() []string {
	var env []string
	for _, name := range s.cfg.Env.Pass {
		for _, kv := range s.env.All() {
			if strings.HasPrefix(kv, name+"=") {
				env = append(env, kv)
			}
		}
	}
	env = append(env, s.injected()...)
	return append(env, s.cfg.Env.Set...)
}
