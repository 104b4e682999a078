package network

import (
	"encoding/json"
	"testing"
)

// A rule is the same after it was a text in JSON.
func TestRuleJSON(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"example.com", "GET,HEAD example.com:443/simple/* !git-receive-pack", "@npm:ro", "10.0.0.0/8:5432"} {
		rule, err := ParseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		line, err := json.Marshal([]Rule{rule})
		if err != nil {
			t.Fatal(err)
		}
		var got []Rule
		if err := json.Unmarshal(line, &got); err != nil || len(got) != 1 || !got[0].Equal(rule) {
			t.Errorf("%s became %s, and then %v, %v", text, line, got, err)
		}
	}
	var rule Rule
	if err := json.Unmarshal([]byte(`"exa mple"`), &rule); err == nil {
		t.Error("a bad rule was taken")
	}
}
