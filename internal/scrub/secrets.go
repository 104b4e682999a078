package scrub

import (
	"fmt"
	"slices"
	"strings"
)

// MinSecret is the length of the shortest secret, in bytes. A shorter one would be found
// in unrelated text.
const MinSecret = 8

// Secret is a value to be masked, and the name that is shown in its place.
type Secret struct {
	Name  string // letters, digits, '_', '-' and '.'; shown in the mask
	Value string
}

// Warning says that a secret is not masked, and why. It has the secret's name, never its
// value.
type Warning struct {
	Name   string
	Reason string
}

func (w Warning) String() string { return fmt.Sprintf("secret %s: %s", w.Name, w.Reason) }

// Secrets is a set of secrets, prepared for the search. It never changes, so that any
// number of sinks may use it at the same time. A nil *Secrets has none.
type Secrets struct {
	masks []string // by number of the secret
	index *index   // nil if there is nothing to search for
}

// NewSecrets prepares the search for the secrets as they are, in base64 and hex, and
// escaped for URLs, JSON, HTML and shells. A secret that cannot be searched for is left
// out, with a warning. It returns an error if a name cannot be shown in a mask.
//
// Line ends at the end of a value are not part of it. If two secrets have the same
// value, the first one's name is shown.
func NewSecrets(list []Secret) (*Secrets, []Warning, error) {
	var warnings []Warning
	var needles []needle
	s := &Secrets{}
	for _, secret := range list {
		if !maskable(secret.Name) {
			return nil, nil, fmt.Errorf("secret name %q: use letters, digits, '_', '-' and '.', at most 128 of them", secret.Name)
		}
		value := strings.TrimRight(secret.Value, "\r\n")
		mask := "[REDACTED:" + secret.Name + "]"
		switch {
		case value == "":
			warnings = append(warnings, Warning{secret.Name, "is empty; nothing is masked for it"})
			continue
		case len(value) < MinSecret:
			warnings = append(warnings, Warning{secret.Name, fmt.Sprintf(
				"is shorter than %d bytes and will not be masked; use a longer value", MinSecret)})
			continue
		case strings.Contains(mask, value):
			warnings = append(warnings, Warning{secret.Name, "is part of its own mask and will not be masked; rename it"})
			continue
		}
		needles = append(needles, needlesOf(len(s.masks), value)...)
		s.masks = append(s.masks, mask)
	}
	if len(needles) > 0 {
		s.index = newIndex(needles)
	}
	return s, warnings, nil
}

// Len returns how many secrets are searched for.
func (s *Secrets) Len() int {
	if s == nil {
		return 0
	}
	return len(s.masks)
}

// Scrub returns text with every secret in it masked. It is for errors and logs; streams
// need a Sink, a Masked or a SafeText.
func (s *Secrets) Scrub(text string) string {
	if s == nil || s.index == nil {
		return text
	}
	var b strings.Builder
	sc := New(s, func(p []byte, _ Origin) { b.Write(p) })
	sc.Write([]byte(text), Changed)
	sc.Flush()
	return b.String()
}

func maskable(name string) bool {
	if name == "" || len(name) > 128 {
		return false
	}
	return !slices.ContainsFunc([]byte(name), func(c byte) bool {
		return !isAlnum(c) && c != '_' && c != '-' && c != '.'
	})
}

func isAlnum(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
