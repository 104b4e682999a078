package core

import (
	"context"
	"fmt"
	"slices"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Forwards are what a command was asked to forward.
type Forwards []config.Forward

// WithTokens returns the forwards, all with a token.
func (all Forwards) WithTokens() Forwards {
	all = slices.Clone(all)
	for i := range all {
		all[i].HTTP = true
	}
	return all
}

// ParseForwards reads what the arguments of a command say to forward.
func ParseForwards(texts []string) (Forwards, error) {
	var all Forwards
	for _, text := range texts {
		spec, err := config.ParseForward(text)
		if err != nil {
			return nil, exit.Misuse(config.ForwardHint(), "%s", err)
		}
		all = append(all, spec)
	}
	return all, nil
}

// ForwardNotes are where it is said what happens to forwards.
type ForwardNotes struct {
	Say   func(string) // where each listens
	Token func(string) // the same with a token, which is said nowhere else and so never left out
	Note  func(string) // what is to be said later, perhaps concurrently
}

// OpenForwards opens all forwards, or none.
func OpenForwards(ctx context.Context, s *sandbox.Session, specs Forwards, to ForwardNotes) ([]*sandbox.Forward, error) {
	var all []*sandbox.Forward
	for _, spec := range specs {
		f, err := s.Forward(ctx, sandbox.ForwardOptions{Listen: spec.Listen(), Port: spec.Port, HTTP: spec.HTTP, Note: to.Note})
		if err != nil {
			for _, open := range all {
				_ = open.Close()
			}
			return nil, err
		}
		all = append(all, f)
	}
	for i, f := range all {
		if url := f.URL(); url != "" {
			to.Token(fmt.Sprintf("%s is forwarded to port %d of session %s", url, f.Port(), s.ID()))
		} else {
			to.Say(fmt.Sprintf("%s is forwarded to port %d of session %s", f.Addr(), f.Port(), s.ID()))
		}
		switch {
		case specs[i].Open() && specs[i].HTTP:
			to.Say(fmt.Sprintf("warning: %s is not encrypted: everyone on the network between this machine and a browser can read the token and all that is sent", f.Addr()))
		case specs[i].Open():
			to.Say(fmt.Sprintf("warning: other machines may be able to connect to %s, and so to the session: leave HOST out to listen on this machine's loopback only", f.Addr()))
		}
	}
	return all, nil
}
