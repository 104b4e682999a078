package tool

import (
	"path/filepath"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/corpus"
)

// contractOf is the contract of a letter in the specification.
func contractOf(t *testing.T, letter string) Contract {
	t.Helper()
	c, err := Parse(letter)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func defaultHost() Host { return Host{Settings: DefaultSettings()} }

// errorOf is the text of a plan's error, "" if it has none.
func errorOf(p Plan) string {
	if p.Err == nil {
		return ""
	}
	return p.Err.Text
}

func checkText(t *testing.T, res Result, want corpus.Expect) {
	t.Helper()
	want.CheckText(t, res.Text, res.IsError, string(res.Thrown))
}

func checkDetails(t *testing.T, o Outcome, res Result, want corpus.Expect) {
	t.Helper()
	cut := corpus.Cut{Artifact: o.Output.Artifact.Bytes, ArtifactName: filepath.Base(o.Output.Artifact.Path)}
	if res.Details != nil && res.Details.Meta != nil {
		tr := res.Details.Meta.Truncation
		cut.Truncation, cut.OutputBytes, cut.TotalLines, cut.ArtifactID = tr, tr.OutputBytes, tr.TotalLines, tr.ArtifactID
	}
	want.CheckDetails(t, res.Details, cut)
}

func checkPlain(t *testing.T, out PlainOutput, want corpus.Expect) {
	t.Helper()
	plain := corpus.Plain{Error: out.Error}
	if out.Stdout != nil {
		plain.Stdout, plain.Stderr = *out.Stdout, *out.Stderr
	}
	if out.ExitCode != nil {
		plain.ExitCode = *out.ExitCode
	}
	want.CheckPlain(t, out, plain)
}
