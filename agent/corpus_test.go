package agent

import (
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/corpus"
	"github.com/sandboxbash/sandboxbash/tool"
)

func checkText(t *testing.T, res tool.Result, want corpus.Expect) {
	t.Helper()
	want.CheckText(t, res.Text, res.IsError, string(res.Thrown))
}

func checkDetails(t *testing.T, res tool.Result, want corpus.Expect) {
	t.Helper()
	var cut corpus.Cut
	if res.Details != nil && res.Details.Meta != nil {
		tr := res.Details.Meta.Truncation
		cut = corpus.Cut{Truncation: tr, OutputBytes: tr.OutputBytes, TotalLines: tr.TotalLines, ArtifactID: tr.ArtifactID}
	}
	want.CheckDetails(t, res.Details, cut)
}

func checkPlain(t *testing.T, out tool.PlainOutput, want corpus.Expect) {
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
