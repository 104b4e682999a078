package config

import (
	"fmt"

	"github.com/go-viper/mapstructure/v2"
)

// completePolicy reads the interceptor's rules, and sets what follows from other settings.
func (r *reader) completePolicy(p *Policy) {
	p.Rules = r.rules()
	if p.Checks == nil && r.given("policy.checks") {
		p.Checks = []string{} // an empty list is none, whatever the contract
	}
	if len(p.Rules) > 0 && !r.given("policy.interceptor") {
		p.Interceptor = true
	}
}

// rules reads the interceptor's rules. It does not compile their patterns: by
// default a rule that does not compile is left out later, which is not an error.
func (r *reader) rules() []Rule {
	raw := r.v.Get(rulesKey)
	if raw == nil {
		return nil
	}
	list := []Rule{}
	dec, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{Result: &list, ErrorUnused: true})
	if err == nil {
		err = dec.Decode(raw)
	}
	if err != nil {
		r.badRule("it is not understood", "give a list of {pattern, flags, tool, message, id}, and nothing else; put quotes around each text")
		return nil
	}
	ids := map[string]bool{}
	for i, rule := range list {
		for _, field := range []struct{ name, value string }{{"pattern", rule.Pattern}, {"tool", rule.Tool}, {"message", rule.Message}} {
			if field.value == "" {
				r.badRule(fmt.Sprintf("entry %d has no %s", i+1, field.name), "each rule needs a pattern, a tool and a message")
			}
		}
		if rule.ID != "" && ids[rule.ID] {
			r.badRule(fmt.Sprintf("entry %d has the id %s, which another has", i+1, shown(rule.ID)), "")
		}
		ids[rule.ID] = true
	}
	return list
}

func (r *reader) badRule(text, hint string) {
	r.errs = append(r.errs, &Error{Key: rulesKey, Origin: r.file, Text: text, Hint: hint})
}
