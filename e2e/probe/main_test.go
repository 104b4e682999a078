//go:build linux

package main

import (
	"bytes"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sandboxbash/sandboxbash/e2e/probe/expect"
)

// Nothing is tried here: this machine is not a sandbox.
func TestEveryAttemptIsExpected(t *testing.T) {
	t.Parallel()
	var got, want []string
	for _, a := range attempts(none) {
		got = append(got, a.row+" "+a.name)
	}
	for _, l := range expect.Lines {
		want = append(want, l.Row+" "+l.Name)
	}
	less := cmpopts.SortSlices(func(a, b string) bool { return a < b })
	if diff := cmp.Diff(want, got, less); diff != "" {
		t.Errorf("attempts() against expect.Lines (-want +got):\n%s", diff)
	}
}

func TestOutcome(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, "allowed"},
		{syscall.Errno(0), "allowed"},
		{syscall.EPERM, "EPERM"},
		{&syscallError{syscall.EROFS}, "EROFS"},
		{syscall.Errno(4000), "errno4000"},
	} {
		if got := outcome(tt.err); got != tt.want {
			t.Errorf("outcome(%v) = %s; want %s", tt.err, got, tt.want)
		}
	}
}

type syscallError struct{ err error }

func (e *syscallError) Error() string { return "wrapped: " + e.err.Error() }
func (e *syscallError) Unwrap() error { return e.err }

func TestList(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		names []string
		want  string
	}{
		{nil, "none"},
		{[]string{"b", "a", "b"}, "a,b"},
		{[]string{"a b"}, "a_b"},
		{strings.Split("abcdefghijklmnopqrstuvwxyz", ""), "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s,t,and_6_more"},
	} {
		if got := list(tt.names); got != tt.want {
			t.Errorf("list(%q) = %s; want %s", tt.names, got, tt.want)
		}
	}
}

func TestRunWithoutVerb(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	if code := run(nil, &stdout, &stderr); code != 2 || stdout.Len() != 0 || !strings.Contains(stderr.String(), "probe all") {
		t.Errorf("run() = %d, stdout %q, stderr %q; want 2 and the usage", code, &stdout, &stderr)
	}
}
