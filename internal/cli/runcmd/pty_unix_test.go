//go:build unix

package runcmd

import (
	"os"
	"testing"
	"time"
)

// A look for input ends with the input or with the command, whichever comes first,
// and sleeps until then.
func TestReadable(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"input", "end of input", "over", "over before", "both"} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = r.Close()
			_ = w.Close()
		})
		over := make(chan struct{})
		if name == "over before" || name == "both" {
			close(over)
		}
		if name == "both" {
			_, _ = w.WriteString("x")
		}
		got := make(chan bool, 1)
		go func() { got <- readable(r, over) }()
		switch name {
		case "input":
			_, _ = w.WriteString("x")
		case "end of input":
			w.Close()
		case "over":
			close(over)
		}
		select {
		case ok := <-got:
			if want := name == "input" || name == "end of input"; ok != want && name != "both" {
				t.Errorf("%s: readable() = %t; want %t", name, ok, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: readable() does not return", name)
		}
	}
}
