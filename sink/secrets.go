package sink

import (
	"fmt"
	"slices"
	"strings"
)

// MinSecret is the least number of bytes a secret may have. Anything shorter
// would be found in text that has nothing to do with it.
const MinSecret = 8

// Secret is a value that must not be seen, and the name that stands in for it.
type Secret struct {
	Name  string // letters, digits, '_', '-' and '.'; shown in the mask
	Value string
}

// Warning says that a secret is not looked for, and why. It holds the secret's
// name and never its value.
type Warning struct {
	Name   string
	Reason string
}

func (w Warning) String() string { return fmt.Sprintf("secret %s: %s", w.Name, w.Reason) }

// Secrets is a set of secrets made ready to be searched for. It never changes
// after NewSecrets, so that any number of sinks may use it at once. A nil
// *Secrets holds none.
type Secrets struct {
	masks []string // by number of the secret
	index *index   // nil if there is nothing to look for
}

// NewSecrets prepares the search for the given secrets in every form that
// needlesOf lists. A secret that cannot be looked for is left out and has a
// warning. An error means that a name is not fit to be shown.
//
// Line ends after the last character of a value are no part of it. Where two
// secrets have one value, the first one's name is shown.
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

// Len returns how many secrets are looked for.
func (s *Secrets) Len() int {
	if s == nil {
		return 0
	}
	return len(s.masks)
}

// Scrub returns text with every secret in it masked: for errors and logs, which
// are not streams.
func (s *Secrets) Scrub(text string) string {
	if s == nil || s.index == nil {
		return text
	}
	var b strings.Builder
	sc := newScrubber(s, func(p []byte, _ origin) { b.Write(p) })
	sc.write([]byte(text), changed)
	sc.flush()
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
