package scrub

import (
	"bytes"
	"encoding/json"
	"testing"
)

// A masked document is a document, with the same shape, whatever the secret is.
func TestScrubJSON(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, secret, doc, want string }{
		{"value", "hunter2hunter2", `{"a":"x hunter2hunter2"}`, `{"a":"x [REDACTED:S]"}`},
		{"name", "hunter2hunter2", `{"hunter2hunter2": 1}`, `{"[REDACTED:S]": 1}`},
		{"name of ours", "exitCode", `{"exitCode":1,"text":"exitCode"}`, `{"exitCode":1,"text":"[REDACTED:S]"}`},
		{"number", "12345678", `{"pid":12345678,"text":"12345678"}`, `{"pid":12345678,"text":"[REDACTED:S]"}`},
		{"syntax", `","b":"x`, `{"a":"x","b":"x"}`, `{"a":"x","b":"x"}`},
		{"quoted", `pass"word\x`, `{"a":"pass\"word\\x!"}`, `{"a":"[REDACTED:S]!"}`},
		{"escaped", "hunter2/é/hunter", `{"a":"\u0068unter2\/\u00e9/hunter"}`, `{"a":"[REDACTED:S]"}`},
		{"base64", "hunter2hunter2", `["aHVudGVyMmh1bnRlcjI="]`, `["[REDACTED:S]="]`},
		{"kept", "hunter2hunter2", `{"id":"hunter2hunter2","a":{"id":"hunter2hunter2"}}`, `{"id":"hunter2hunter2","a":{"id":"[REDACTED:S]"}}`},
		{"brackets in texts", "hunter2hunter2", `{"a":"}]","id":"hunter2hunter2"}`, `{"a":"}]","id":"hunter2hunter2"}`},
		{"not JSON", "hunter2hunter2", `{"a":hunter2hunter2`, `{"a":[REDACTED:S]`},
		{"nothing", "hunter2hunter2", ``, ``},
	} {
		got := string(mustSecrets(t, Secret{"S", row.secret}).ScrubJSON([]byte(row.doc), "id"))
		if row.name == "base64" {
			got = string(bytes.ReplaceAll([]byte(got), []byte(`]="`), []byte(`]"`)))
			row.want = `["[REDACTED:S]"]`
		}
		if got != row.want {
			t.Errorf("%s: ScrubJSON(%s) = %s; want %s", row.name, row.doc, got, row.want)
		}
		if json.Valid([]byte(row.doc)) && !json.Valid([]byte(got)) {
			t.Errorf("%s: %s is not JSON", row.name, got)
		}
	}
}
