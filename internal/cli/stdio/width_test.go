package stdio

import (
	"bytes"
	"os"
	"testing"

	"github.com/sandboxbash/sandboxbash/sink"
)

// A stream that is not a terminal has no width, whatever is around it.
func TestWidthOfNoTerminal(t *testing.T) {
	t.Parallel()
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	masks := func() *sink.Secrets { return nil }
	for name, w := range map[string]any{
		"a buffer": &bytes.Buffer{}, "a file": file, "a masked file": New(nil, nil, nil, masks).Masked(file), "nothing": nil,
	} {
		if got := Width(w); got != 0 || IsTerminal(w) {
			t.Errorf("Width(%s) = %d; want 0, and no terminal", name, got)
		}
	}
}
