package core

import (
	"strings"
	"testing"
	"time"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// The switch of a server switches the log on, whatever the contract.
func TestServeLog(t *testing.T) {
	t.Parallel()
	a, _ := logging(t, "text", time.Now)
	a.cfg.Log.Level = "off"
	if a.Observer() != nil {
		t.Error("without a log there is an observer")
	}
	b, out := logging(t, "text", time.Now)
	b.cfg.Log.Level, b.cfg.Serve.Log = "off", true
	o := b.Observer()
	if o == nil {
		t.Fatal("with serve.log nothing observes")
	}
	o.Note(sandbox.Observation{Kind: sandbox.EventSessionStart, Session: "s1"})
	if got := out.String(); !strings.Contains(got, "session=s1") {
		t.Errorf("the log has %q; want the start of the session", got)
	}
}
