// Package inject puts secrets into HTTP requests on this machine, so that the programs of a session
// hold placeholders only.
//
// A placeholder becomes the value where three things agree: the request goes out over TLS, one of the
// secret's rules is for its host, port, method and path, and the placeholder stands in a header that
// may carry a credential. In every answer of such a host the values are masked. What cannot be masked
// is refused.
package inject

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"

	"github.com/sandboxbash/sandboxbash/internal/scrub"
	"github.com/sandboxbash/sandboxbash/network"
)

// Secret is a value that programs of a session know by its placeholder alone.
type Secret struct {
	Name        string
	Placeholder string
	Value       string
	Rules       []network.Rule // the requests that it is put into
	InQuery     bool           // also where the placeholder is in the query
	// Missing says that there is no value here. A request that would get it is refused.
	Missing bool
}

// MissingError is the error for a request that needs a secret without a value.
type MissingError struct{ Name string }

func (e *MissingError) Error() string {
	return "the secret " + e.Name + " has no value where the connections of this session are carried. The user has to give it again"
}

// httpPort is for plain HTTP. A rule without a port is for 80 and 443, but no secret goes to 80.
const httpPort = 80

// placeholderRandom is how many random bytes a placeholder has. A placeholder is not secret, but
// none may be another's, nor stand in a text by chance.
const placeholderRandom = 8

// NewPlaceholder returns a placeholder that no other secret and no other session has. It needs no
// quotes in a shell, a header, a URL and JSON. The name must be one that a variable can have.
func NewPlaceholder(name string) string {
	random := make([]byte, placeholderRandom)
	_, _ = rand.Read(random) // never fails
	return Placeholder(name, random)
}

// Placeholder is NewPlaceholder with random bytes of the caller's, of which it takes the first eight.
func Placeholder(name string, random []byte) string {
	return "sandboxbash_secret_" + name + "_" + hex.EncodeToString(random[:placeholderRandom])
}

// Check returns an error if the secret cannot be put into requests, or could not be masked in answers.
// The error does not show the value. Check does not look at the placeholder.
func (s Secret) Check() error {
	switch {
	case s.Missing && s.Value == "":
		return s.checkRules()
	case s.Missing:
		return fmt.Errorf("secret %s has a value and is missing", s.Name)
	case s.Value == "":
		return fmt.Errorf("secret %s has no value", s.Name)
	case strings.ContainsAny(s.Value, "\r\n"):
		return fmt.Errorf("secret %s has a line end in its value: a header cannot carry it", s.Name)
	case strings.ContainsFunc(s.Value, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("secret %s has a control character in its value: a header cannot carry it", s.Name)
	case strings.TrimSpace(s.Value) != s.Value:
		return fmt.Errorf("secret %s begins or ends with white space: a header does not keep it", s.Name)
	}
	if err := s.checkRules(); err != nil {
		return err
	}
	_, warnings, err := scrub.NewSecrets([]scrub.Secret{{Name: s.Name, Value: s.Value}})
	if err == nil && len(warnings) > 0 {
		err = errors.New(warnings[0].String())
	}
	return err
}

func (s Secret) checkRules() error {
	if len(s.Rules) == 0 {
		return fmt.Errorf("secret %s has no hosts", s.Name)
	}
	for _, r := range s.Rules {
		if err := r.CheckSecret(); err != nil {
			return fmt.Errorf("secret %s, host %s: %w", s.Name, r, err)
		}
	}
	return nil
}

// Set is the secrets of a session. A nil Set has none. It does not change, and is safe for concurrent
// use.
type Set struct {
	secrets []Secret
	masks   *scrub.Secrets
}

// New returns a Set of secrets, or an error if one of them cannot be put into requests, could not be
// masked in answers, or has a placeholder that is not its own.
func New(secrets []Secret) (*Set, error) {
	set := &Set{secrets: slices.Clone(secrets)}
	var list []scrub.Secret
	for i, s := range secrets {
		if err := s.Check(); err != nil {
			return nil, err
		}
		if err := checkPlaceholder(s, secrets[:i]); err != nil {
			return nil, err
		}
		if !s.Missing {
			list = append(list, scrub.Secret{Name: s.Name, Value: s.Value})
		}
	}
	var err error
	set.masks, _, err = scrub.NewSecrets(list)
	return set, err
}

// minPlaceholder is less than NewPlaceholder gives, and more than stands in a text by chance.
const minPlaceholder = 16 // bytes

func checkPlaceholder(s Secret, others []Secret) error {
	valid := func(r rune) bool {
		return r == '_' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	if len(s.Placeholder) < minPlaceholder || strings.ContainsFunc(s.Placeholder, func(r rune) bool { return !valid(r) }) {
		return fmt.Errorf("secret %s: its placeholder must have %d or more letters, digits, _ and -", s.Name, minPlaceholder)
	}
	if holdEachOther(s.Placeholder, s.Value) {
		return fmt.Errorf("secret %s: its placeholder and its value hold each other", s.Name)
	}
	for _, o := range others {
		switch {
		case o.Name == s.Name:
			return fmt.Errorf("secret %s is there twice", s.Name)
		case strings.Contains(o.Placeholder, s.Placeholder), strings.Contains(s.Placeholder, o.Placeholder):
			return fmt.Errorf("the secrets %s and %s have placeholders that hold each other", o.Name, s.Name)
		case holdEachOther(o.Value, s.Placeholder), holdEachOther(s.Value, o.Placeholder):
			return fmt.Errorf("the secrets %s and %s: a placeholder and a value hold each other", o.Name, s.Name)
		}
	}
	return nil
}

// holdEachOther is false if one of the texts is empty: the value of a secret that has none here.
func holdEachOther(a, b string) bool {
	return a != "" && b != "" && (strings.Contains(a, b) || strings.Contains(b, a))
}

// Intercepts reports whether requests to a host and port must be seen to put a secret into them.
func (s *Set) Intercepts(host string, port int) bool {
	if s == nil || port == httpPort {
		return false
	}
	return slices.ContainsFunc(s.secrets, func(one Secret) bool {
		return one.policy().Connect(host, port).Allowed
	})
}

// policy allows the requests that the secret is for, and no others. So a secret's rules are read as
// all rules are: the same spelling of a host, the same form of a path, and no request that servers
// read in different ways.
func (s Secret) policy() *network.Policy { return &network.Policy{Allow: s.Rules} }

// forRequest returns the secrets that may be put into a request.
func (s *Set) forRequest(r *http.Request, host string, port int) []Secret {
	var all []Secret
	for _, one := range s.secrets {
		if one.policy().Request(host, port, r.Method, r.URL.RequestURI()).Allowed {
			all = append(all, one)
		}
	}
	return all
}

// Mask masks the secrets in a text.
func (s *Set) Mask(text string) string {
	if s == nil {
		return text
	}
	return s.masks.Scrub(text)
}

// MaskError returns the error with the secrets in its text masked, and nil for nil.
func (s *Set) MaskError(err error) error {
	if s == nil || err == nil {
		return err
	}
	return &maskedError{s.Mask(err.Error()), err}
}

// maskedError shows another text than the error that it is.
type maskedError struct {
	text string
	error
}

func (e *maskedError) Error() string { return e.text }

func (e *maskedError) Unwrap() error { return e.error }

// answer is the context of a request to a host that secrets are for, or may be for. It has no
// httptrace.ClientTrace: with one, a proxy passes on informational responses, such as 103, before
// Incoming can mask them.
type answer struct {
	context.Context //nolint:containedctx // it is a context

	masked bool
}

// answerKey is the key of the answer in a context.
type answerKey struct{}

func (a answer) Value(key any) any {
	if _, ok := key.(answerKey); ok {
		return a
	}
	value := a.Context.Value(key)
	if _, traces := value.(*httptrace.ClientTrace); traces && a.masked {
		return nil
	}
	return value
}

// remember notes in a request whether its answer has to be masked.
func remember(r *http.Request, masked bool) { *r = *r.WithContext(answer{r.Context(), masked}) }

// mustMask says whether the answer to a request has to be masked. Nothing is known of a request that Outgoing
// was not called with, so it has to be.
func mustMask(r *http.Request) bool {
	if r == nil {
		return true
	}
	a, known := r.Context().Value(answerKey{}).(answer)
	return a.masked || !known
}
