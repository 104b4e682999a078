package tool

import (
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/sink"
)

func TestRender(t *testing.T) {
	t.Parallel()
	thirty := strings.Repeat("line\n", 30)
	cut := &sink.Truncation{Direction: sink.DirectionTail, TruncatedBy: sink.ByBytes, TotalBytes: 108894, OutputBytes: 51200, ArtifactID: "7"}
	for _, test := range []struct {
		name string
		s    Shown
		v    View
		want string
	}{
		{"nothing yet", Shown{Command: "make", Running: true}, View{}, "$ make\n[running]\n"},
		{"all is well", Shown{Command: "ls", Output: "a\nb\n"}, View{}, "$ ls\na\nb\n"},
		{"several lines", Shown{Command: "a\nb"}, View{}, "$ a\n  b\n"},
		{"failed", Shown{Command: "x", Code: 2, TimeoutSeconds: 1.5}, View{}, "$ x\n[exit 2; timeout: 1.5s]\n"},
		{"ended", Shown{Command: "x", TimedOut: true, TimeoutSeconds: 300}, View{}, "$ x\n[timed out; timeout: 300s]\n"},
		{"cancelled", Shown{Command: "x", Cancelled: true, Output: "\n\n"}, View{}, "$ x\n\n\n[cancelled]\n"},
		{"a call", Shown{Command: "x", Output: thirty}, View{}, "$ x\n… 20 earlier lines\n" + strings.Repeat("line\n", 10)},
		{"a user's", Shown{Command: "x", Output: thirty}, View{Surface: UserCommand}, "$ x\n… 10 earlier lines\n" + strings.Repeat("line\n", 20)},
		{"expanded", Shown{Command: "x", Output: thirty}, View{Expanded: true}, "$ x\n" + thirty},
		{"wrapped", Shown{Command: "x", Output: strings.Repeat("é", 23)}, View{Columns: 2}, "$ x\n… 2 earlier lines\n" + strings.Repeat("éé\n", 9) + "é\n"},
		{"tabs", Shown{Command: "x", Output: "\ta"}, View{}, "$ x\n   a\n"},
		{
			"long",
			Shown{Command: "x", Output: strings.Repeat("y", 4001)},
			View{Surface: UserCommand},
			"$ x\n" + strings.Repeat("y", 4000) + "… [1 character omitted]\n",
		},
		{"cut", Shown{Command: "x", Output: "z", Truncation: cut}, View{}, "$ x\nz\n[Truncated: 50.0KB of 106.3KB shown; artifact://7]\n"},
		{
			"lines",
			Shown{Command: "x", Truncation: &sink.Truncation{TruncatedBy: sink.ByLines, OutputLines: 5, TotalLines: 9}},
			View{},
			"$ x\n[Truncated: 5 of 9 lines shown]\n",
		},
		{
			"middle",
			Shown{Command: "x", Truncation: &sink.Truncation{TruncatedBy: sink.ByMiddle, ElidedBytes: 2048}},
			View{},
			"$ x\n[Truncated: 2.0KB in the middle left out]\n",
		},
	} {
		if got := Render(test.s, test.v); got != test.want {
			t.Errorf("%s: Render() = %q; want %q", test.name, got, test.want)
		}
	}
}
