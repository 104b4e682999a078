package sandbox

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/network/inject"
)

// Secret is a value that never enters a session. Commands have the variable Name with a placeholder,
// new for each session; where a request carries the placeholder to one of the hosts, in a header or as the
// user or password of Basic, this process puts the value in its place. docs/network.md says more.
//
// Hosts do not allow anything: Spec.Allow must allow the request too.
type Secret struct {
	Name    string // of the variable
	Value   string `json:"-"`
	Hosts   []network.Rule
	InQuery bool // also where the placeholder is in the query
}

// String returns the name, so that a Secret that is printed does not show its value.
func (s Secret) String() string { return s.Name }

// GoString is String for %#v.
func (s Secret) GoString() string { return s.Name }

// Check returns an error if the secret cannot be put into requests. It does not show the value.
func (s Secret) Check() error {
	if !EnvName(s.Name) {
		return fmt.Errorf("secret %s: its name becomes a variable's: use letters, digits and _, and begin with no digit", printable(s.Name))
	}
	return s.injected("").Check()
}

func (s Secret) injected(placeholder string) inject.Secret {
	return inject.Secret{Name: s.Name, Placeholder: placeholder, Value: s.Value, Rules: s.Hosts, InQuery: s.InQuery}
}

func checkSecrets(list []Secret) error {
	seen := map[string]bool{}
	for _, s := range list {
		if err := s.Check(); err != nil {
			return err
		}
		if seen[s.Name] {
			return fmt.Errorf("secret %s is there twice: give each a name of its own", s.Name)
		}
		seen[s.Name] = true
	}
	return nil
}

// unmasked returns an error if a secret of a session would not be masked in outputs, records and errors.
func (e *Engine) unmasked(list []Secret) error {
	for _, s := range list {
		if e.opts.Secrets.Scrub(s.Value) == s.Value {
			return badInput("session", "secret %s: its value is not among Options.Secrets, and would not be masked where it turns up", s.Name)
		}
	}
	return nil
}

// HostedSecret is a Secret of a session that was started with Spec.Detached, as its label describes it:
// where it goes, and not what it is.
type HostedSecret struct {
	Name    string   `json:"name"`
	Hosts   []string `json:"hosts"` // as network.ParseRule takes them
	InQuery bool     `json:"inQuery,omitempty"`
}

// describedSecrets is what a label says of secrets.
func describedSecrets(list []Secret) []HostedSecret {
	var all []HostedSecret
	for _, s := range list {
		all = append(all, HostedSecret{Name: s.Name, Hosts: network.Texts(s.Hosts), InQuery: s.InQuery})
	}
	return all
}

// heldPlaceholder is the placeholder of a secret in a session that was started with Spec.Detached. Each process that
// opens the session knows it, and it is the same when another process carries the connections. It is
// made from a key of the session, so that no other session has it, not even one with the same workspace.
func (i Info) heldPlaceholder(name string) string {
	mac := hmac.New(sha256.New, i.key)
	mac.Write([]byte("placeholder of the secret " + name))
	return inject.Placeholder(name, mac.Sum(nil))
}

// heldPlaceholders are the variables with the placeholders of such a session.
func (i Info) heldPlaceholders() (env []string) {
	if i.Rules == nil || i.key == nil {
		return nil
	}
	for _, s := range i.Rules.Secrets {
		env = append(env, s.Name+"="+i.heldPlaceholder(s.Name))
	}
	return env
}

// heldSecrets returns the secrets that such a session was started with, with the values among given, and
// notes about those that have none any more. A value goes only where the session was started to have it go.
func (i Info) heldSecrets(given []Secret) (*inject.Set, []string, error) {
	if i.Rules == nil || len(i.Rules.Secrets) == 0 || i.key == nil {
		return nil, nil, nil
	}
	var all []inject.Secret
	var notes []string
	for _, described := range i.Rules.Secrets {
		one := inject.Secret{Name: described.Name, Placeholder: i.heldPlaceholder(described.Name), InQuery: described.InQuery, Missing: true}
		for _, text := range described.Hosts {
			r, err := network.ParseRule(text)
			if err != nil {
				return nil, nil, fmt.Errorf("secret %s: %w", described.Name, err)
			}
			one.Rules = append(one.Rules, r)
		}
		why := "it has none there"
		for _, s := range given {
			if s.Name != described.Name {
				continue
			}
			if s.InQuery == described.InQuery && slices.Equal(network.Texts(s.Hosts), described.Hosts) {
				one.Value, one.Missing = s.Value, false
			} else {
				why = "it is for other requests there"
			}
		}
		if one.Missing {
			notes = append(notes, fmt.Sprintf("secret %s: requests that need it are refused, because the call that has started the process "+
				"that carries the connections of session %s could not give it: %s", one.Name, i.ID, why))
		}
		all = append(all, one)
	}
	set, err := inject.New(all)
	return set, notes, err
}

// placeholdersOf returns secrets with new placeholders, and the variables that hold these. They are made
// for one session in one process: a session that another process adopts or that is made from the same
// workspace has none of them.
func placeholdersOf(list []Secret) (*inject.Set, []string, error) {
	if len(list) == 0 {
		return nil, nil, nil
	}
	var env []string
	all := make([]inject.Secret, len(list))
	for i, s := range list {
		all[i] = s.injected(inject.NewPlaceholder(s.Name))
		env = append(env, s.Name+"="+all[i].Placeholder)
	}
	set, err := inject.New(all)
	return set, env, err
}

// secretNotes returns notes about secrets that no request can carry.
func (s *Spec) secretNotes() []string {
	var notes []string
	excluded := network.Policy{Deny: s.Exclude}
	for _, secret := range s.Secrets {
		switch {
		case s.Network == NetworkBridge:
			notes = append(notes, fmt.Sprintf("secret %s is not put into requests: with network bridge they do not leave through this process", secret.Name))
		case len(s.Allow) == 0:
			notes = append(notes, fmt.Sprintf("secret %s is not put into requests: no rule allows any: allow its hosts too", secret.Name))
		default:
			for _, host := range secret.Hosts {
				if by, ok := excluded.Overruled(host); ok {
					notes = append(notes, fmt.Sprintf("secret %s is not put into requests to %s: %s is excluded from being read", secret.Name, host, by))
					continue
				}
				if !slices.ContainsFunc(s.Allow, func(r network.Rule) bool { return r.Overlaps(host) }) {
					notes = append(notes, fmt.Sprintf("secret %s is not put into requests to %s: no rule allows that host: allow it too", secret.Name, host))
				}
			}
		}
	}
	return notes
}

// fingerprint stands for the secrets of a Spec, whose values JSON does not show.
func (s *Spec) fingerprint() string {
	h := sha256.New()
	for _, one := range s.Secrets {
		fmt.Fprintf(h, "%q %q %q %v\n", one.Name, one.Value, one.Hosts, one.InQuery)
	}
	return string(h.Sum(nil))
}
