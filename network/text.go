package network

// MarshalText returns the rule as String writes it, so that a rule is a text in JSON.
func (r Rule) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText parses a rule. Errors are of type *RuleError.
func (r *Rule) UnmarshalText(text []byte) error {
	parsed, err := ParseRule(string(text))
	if err == nil {
		*r = parsed
	}
	return err
}

// Texts returns rules as String writes them.
func Texts(rules []Rule) []string {
	texts := make([]string, 0, len(rules))
	for _, r := range rules {
		texts = append(texts, r.String())
	}
	return texts
}
