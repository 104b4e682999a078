package stdio

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Other processes hold the same open file description: it must stay blocking.
func TestReopenedPipeLeavesTheOtherAlone(t *testing.T) {
	t.Parallel()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r, w := os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
	defer r.Close()
	defer w.Close()
	own := reopenPipe(w)
	if own == nil {
		t.Fatal("reopenPipe() = nil; want a file")
	}
	defer own.Close()
	if _, err := own.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := r.Read(b); err != nil || b[0] != 'x' {
		t.Errorf("Read() = %q, %v; want what was written", b, err)
	}
	flags, err := unix.FcntlInt(uintptr(fds[1]), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_NONBLOCK != 0 {
		t.Errorf("flags of the first = %#x, %v; want it blocking", flags, err)
	}
	if f := reopenPipe(openNull(t)); f != nil {
		t.Errorf("reopenPipe(/dev/null) = %v; want nil", f.Name())
	}
}

func openNull(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}
