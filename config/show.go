package config

import (
	"fmt"
	"strings"
)

// Value is what a lasting setting is, and where that comes from.
type Value struct {
	Key    string
	Text   string // as it would be written in the file; a list's elements are separated by ", "
	Origin string // "default", or the flag, variable or file that counts
}

// Values returns the value of each lasting setting, in the order of Settings, and then one
// for the secrets and one for policy.rules if the file has any. The value of a secret itself
// is not read. The errors are those of Load.
func Values(src Source) ([]Value, error) {
	c := &Config{}
	r, all, err := read(src, c)
	if err != nil {
		return nil, err
	}
	if _, err := r.build(c, all); err != nil {
		return nil, err
	}
	var values []Value
	for _, s := range all {
		if s.PerCall {
			continue
		}
		values = append(values, Value{s.Key, r.shownValue(s), r.origin(s.Key)})
	}
	if names := r.secretsText(); names != "" {
		values = append(values, Value{secretsKey, names, r.origin(secretsKey)})
	}
	if len(c.Policy.Rules) > 0 {
		values = append(values, Value{rulesKey, fmt.Sprintf("%d rules", len(c.Policy.Rules)), r.origin(rulesKey)})
	}
	return values, nil
}

func (r *reader) origin(key string) string {
	if r.from[key] == "" {
		return "default"
	}
	return r.from[key]
}

// shownValue is the value of a setting that was checked. A path is the one that counts.
func (r *reader) shownValue(s Setting) string {
	switch to := s.to.(type) {
	case *string:
		return *to
	case *[]string:
		return strings.Join(*to, ", ")
	}
	if s.Kind == List || s.Kind == Lines {
		return strings.Join(r.values(s.Key), ", ")
	}
	return r.text(s)
}

func (r *reader) secretsText() string {
	var names []string
	for _, s := range r.listedSecrets() {
		names = append(names, fmt.Sprintf("%s (%s)", s.Name, s.From))
	}
	return strings.Join(names, ", ")
}
