package checkpoint

import (
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Turns say which slots of a session run a command: one number for each, in a file that all runners map. It is odd
// while a command runs, and grows at each start and end. So a scan can tell that no command ran during it, and
// no command ever waits for a scan.
type Turns struct{ at []byte }

const turnSize = 8 // bytes

// TurnsSize is the size of the file, in bytes.
func TurnsSize(slots int) int { return slots * turnSize }

// OpenTurns maps the file.
func OpenTurns(path string, slots int) (*Turns, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	at, err := unix.Mmap(int(f.Fd()), 0, TurnsSize(slots), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &Turns{at}, nil
}

func (t *Turns) turn(slot int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&t.at[slot*turnSize])) // a page is aligned
}

// Begin notes that a command of a slot starts. The slot must be locked.
func (t *Turns) Begin(slot int) {
	if n := t.turn(slot); n.Load()%2 == 0 {
		n.Add(1)
	} else {
		n.Add(2) // its last runner was killed
	}
}

// End notes that the command of a slot has ended. The slot must still be locked.
func (t *Turns) End(slot int) { t.turn(slot).Add(1) }

// Quiet returns false if a command runs. Else moved reports whether one has started since. free reports whether a slot is
// not locked: then its runner was killed.
func (t *Turns) Quiet(free func(slot int) bool) (moved func() bool, ok bool) {
	slots := len(t.at) / turnSize
	seen := make([]uint64, slots)
	for i := range seen {
		if seen[i] = t.turn(i).Load(); seen[i]%2 == 1 && !free(i) {
			return nil, false
		}
	}
	return func() bool {
		for i := range seen {
			if t.turn(i).Load() != seen[i] {
				return true
			}
		}
		return false
	}, true
}
