package wire

import (
	"slices"
	"testing"
)

func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		end  JobEnd
		want string
	}{
		{JobEnd{}, "completed"},
		{JobEnd{Code: 3}, "failed: exit status: 3"},
		{JobEnd{Signal: 9}, "failed: signal: 9 (SIGKILL)"},
		{JobEnd{Signal: 9, OOM: true}, "failed: signal: 9 (SIGKILL)"},
		{JobEnd{Signal: 15, Ending: EndedByDemand}, "failed: signal: 15 (SIGTERM)"},
		{JobEnd{Signal: 31}, "failed: signal: 31 (SIGSYS)"},
		{JobEnd{Signal: 40}, "failed: signal: 40"},
		{JobEnd{Signal: 15, Ending: EndedTimeout}, "error: timed out"},
		{JobEnd{Code: 0, Ending: EndedTimeout}, "error: timed out"},
	} {
		if got, want := row.end.Completion(), "\n\n[background process "+row.want+"]\n"; got != want {
			t.Errorf("%+v.Completion() = %q; want %q", row.end, got, want)
		}
	}
}

func TestValidJobID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{
		"bg_1": true, "bg_120": true,
		"": false, "bg_": false, "bg_0": false, "bg_-1": false, "bg_01": false, "bg_+1": false, "1": false, "bg_1/../x": false,
		"../bg_1": false, "bg_1.log": false, "bg_99999999999999999999": false,
	} {
		if got := ValidJobID(id); got != want {
			t.Errorf("ValidJobID(%q) = %t; want %t", id, got, want)
		}
	}
}

func TestNextJobID(t *testing.T) {
	t.Parallel()
	taken := []string{"bg_1", "bg_3"}
	if got := NextJobID(func(id string) bool { return slices.Contains(taken, id) }); got != "bg_2" {
		t.Errorf("NextJobID() = %s; want bg_2", got)
	}
}
