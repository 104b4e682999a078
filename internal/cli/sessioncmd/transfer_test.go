package sessioncmd

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"
	"unicode/utf8"

	"github.com/sandboxbash/sandboxbash/config"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Changes are listed a line each, whatever the files are called, and as JSON in one
// document.
func TestShowChanges(t *testing.T) {
	t.Parallel()
	changes := []sandbox.Change{{Path: "a\nA forged", Kind: "added"}, {Path: "\x1b]hidden", Kind: "deleted"}, {Path: "c4nary-0123456789\xff", Kind: "type"}}
	var out bytes.Buffer
	p := core.New("", []string{"X_TOKEN=c4nary-0123456789"}, nil, &out, io.Discard)
	p.Cfg.Config = &config.Config{}
	a := &files{streams: p.Streams, cfg: p.Cfg}
	if err := a.showChanges(changes, ""); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "A a\\nA forged\nD \\x1b]hidden\nT [REDACTED:X_TOKEN]\\xff\n"; got != want {
		t.Errorf("showChanges() prints %q; want %q", got, want)
	}
	out.Reset()
	p.Cfg.JSON = true
	if err := a.showChanges(changes, ""); err != nil {
		t.Fatal(err)
	}
	var got []sandbox.Change
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || len(got) != 3 || got[0].Path != changes[0].Path || !utf8.Valid(out.Bytes()) || bytes.Contains(out.Bytes(), []byte("c4nary")) {
		t.Errorf("showChanges() prints %q, %v", out.String(), err)
	}
}

func TestInSession(t *testing.T) {
	t.Parallel()
	for word, want := range map[string][3]string{
		"0199:/a:b": {"0199", "/a:b", "ok"}, "0199:": {"0199", ".", "ok"}, "0199:x": {"0199", "x", "ok"}, "0199": {}, ":/x": {"", "/x", "ok"}, ":": {"", ".", "ok"},
	} {
		id, path, err := inSession(word)
		if id != want[0] || path != want[1] || (err == nil) != (want[2] == "ok") {
			t.Errorf("inSession(%q) = %q, %q, %v; want %q", word, id, path, err, want)
		}
	}
}
