package networkcmd

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/sink"
)

// shown are the commands with rules, of which those that begin with - deny, and what they print.
func shown(t *testing.T, asJSON bool, rules ...string) (*commands, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	none := func() *sink.Secrets { return nil }
	a := &commands{streams: stdio.New(nil, &out, &out, none), cfg: &core.Configuration{Config: &config.Config{}}}
	a.cfg.JSON = asJSON
	a.cfg.NetworkRules.AllowFrom, a.cfg.NetworkRules.DenyFrom = "--allow", "the file\nx"
	for _, text := range rules {
		denied, deny := strings.CutPrefix(text, "-")
		r, err := network.ParseRule(denied)
		if err != nil {
			t.Fatal(err)
		}
		if deny {
			a.cfg.NetworkRules.Deny = append(a.cfg.NetworkRules.Deny, r)
		} else {
			a.cfg.NetworkRules.Allow = append(a.cfg.NetworkRules.Allow, r)
		}
	}
	return a, &out
}

func TestPrintCheck(t *testing.T) {
	t.Parallel()
	rules := []string{"example.com", "GET paths.example/a/*", "-no.example"}
	for _, tt := range []struct{ words, text, json string }{
		{
			"example.com:443", "allow  example.com  from --allow\n  example.com:443 is allowed by the rule example.com\n",
			`{"verdict":"allow","reason":"allowed","host":"example.com","port":443,"rule":"example.com","origin":"--allow","intercept":false,"message":"example.com:443 is allowed by the rule example.com"}`,
		},
		{
			"https://example.com/x", "allow  example.com  from --allow\n  example.com:443 is allowed by the rule example.com\n  all requests are allowed, and are not looked at\n", "",
		},
		{
			"paths.example:443", "allow  GET paths.example/a/*  from --allow\n  paths.example:443 is allowed by the rule GET paths.example/a/*\n  its requests are judged one by one: give a URL to check one\n", "",
		},
		{
			"POST https://paths.example/a/b?q", "deny  request\n  no rule for paths.example:443 allows the request POST /a/b\n  to allow it: --allow 'POST paths.example:443/a/b'\n",
			`{"verdict":"deny","reason":"request","host":"paths.example","port":443,"method":"POST","target":"/a/b?q","intercept":true,"detail":"POST /a/b","ask":"POST paths.example:443/a/b","message":"no rule for paths.example:443 allows the request POST /a/b"}`,
		},
		{"no.example", "deny  no.example  from the file x\n  no.example:443 is denied by the rule no.example\n", ""},
		{"other.example:22", "deny  no-rule\n  no rule allows other.example:22\n  to allow it: --allow 'other.example:22'\n", ""},
		{"localhost", "deny  local-name\n  localhost:443 is a local name, which is never resolved\n", ""},
	} {
		q, err := parseQuestion(strings.Fields(tt.words))
		if err != nil {
			t.Fatal(err)
		}
		a, out := shown(t, false, rules...)
		if err := a.printCheck(ask(a.policy(), q)); err != nil {
			t.Error(err)
		}
		_ = a.streams.EndMasked()
		if out.String() != tt.text {
			t.Errorf("%s:\n%swant:\n%s", tt.words, out, tt.text)
		}
		a, out = shown(t, true, rules...)
		if err := a.printCheck(ask(a.policy(), q)); err != nil || tt.json != "" && out.String() != tt.json+"\n" {
			t.Errorf("%s: %v\n%swant:\n%s", tt.words, err, out, tt.json)
		}
	}
}

// TestAdviceIsOneWord: what a check advises is one word of the shell, whatever the URL holds: URLs come
// from logs, and paths from sessions.
func TestAdviceIsOneWord(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash to ask")
	}
	for _, target := range []string{"/plain", "/it's", "/'$(echo${IFS}gone)'", "/$HOME/*", "/a&b=(c)", "/!!", "/~x", "/''"} {
		a, _ := shown(t, false, "POST h.example")
		c := ask(a.policy(), question{method: "GET", host: "h.example", port: 443, target: target})
		_, advice, ok := strings.Cut(c.text(""), "to allow it: ")
		if !ok {
			t.Errorf("%s: no advice in %s", target, c.text(""))
			continue
		}
		got, err := exec.CommandContext(t.Context(), bash, "-c", `printf '<%s>' `+strings.TrimSpace(advice)).CombinedOutput()
		if want := "<--allow><" + c.verdict.Ask + ">"; err != nil || string(got) != want {
			t.Errorf("%s: the shell reads %s as %s, %v; want %s", target, strings.TrimSpace(advice), got, err, want)
		}
	}
}

func TestPrintRules(t *testing.T) {
	t.Parallel()
	rules := []string{"@pypi:ro", "example.com", "gone.example:22", "-*.example", "-POST example.com", "-@npm"}
	a, out := shown(t, false, rules...)
	if err := a.printRules(); err != nil {
		t.Fatal(err)
	}
	_ = a.streams.EndMasked()
	const want = `deny   *.example  from the file x
deny   POST example.com  from the file x; requests are judged one by one
deny   @npm  from the file x
         registry.npmjs.org
         registry.yarnpkg.com
allow  @pypi:ro  from --allow; requests are judged one by one
         GET,HEAD files.pythonhosted.org
         GET,HEAD pypi.org
allow  example.com  from --allow
allow  gone.example:22  from --allow; never allows anything, because *.example is denied
deny   everything else, and addresses that are private, local or this machine's unless an address rule names them
`
	if out.String() != want {
		t.Errorf("%s\nwant:\n%s", out, want)
	}
	a, out = shown(t, true, rules...)
	if err := a.printRules(); err != nil {
		t.Fatal(err)
	}
	var got rulesJSON
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Deny) != 3 || len(got.Allow) != 3 || got.Allow[2].Overruled != "*.example" || !got.Allow[0].Intercept || len(got.Deny[2].Stands) != 2 || got.Default != "deny" {
		t.Errorf("as JSON: %+v", got)
	}
	a, out = shown(t, true)
	if err := a.printRules(); err != nil || out.String() != `{"default":"deny","deny":[],"allow":[]}`+"\n" {
		t.Errorf("without rules: %s, %v; want empty lists", out, err)
	}
}
