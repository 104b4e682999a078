//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/checkpoint"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// turnsFile says which slots run a command: see checkpoint.Turns.
var turnsFile = filepath.Join(stateDir, "turns")

// keepStates is the verbs that keep former states of the workspace. They run as uid 0 and are not dumpable; threads of
// them access files as the session's user.
func keepStates(verb wire.Verb, args []string) error {
	// It is the kernel's first choice when memory runs out: a checkpoint can be made again.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(worstScore), 0); err != nil {
		return err
	}
	if err := hide(); err != nil {
		return err
	}
	if err := unix.Setgroups(nil); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	s := checkpoint.Session{Store: wire.CheckpointDir, Hold: holdSlots, Quiet: quiet}
	switch verb {
	case wire.VerbSnap:
		return s.Snap()
	case wire.VerbMend:
		return s.Mend()
	case wire.VerbMaterialize:
		return checkpoint.Materialize(args)
	default:
		return s.Answer(os.Stdin, os.Stdout)
	}
}

// holdSlots takes all slots that are free, and reports whether all are.
func holdSlots() (release func(), all bool) {
	s := &server{}
	for i := range s.slot {
		f, err := os.OpenFile(slotPath(i), os.O_RDONLY, 0)
		if err != nil {
			return func() {}, false
		}
		s.slot[i] = f // until this process ends
	}
	if _, release, ok := s.takeSlots(true); ok {
		return release, true
	}
	for range s.slot {
		s.takeSlots(false)
	}
	return func() {}, false
}

// quiet is checkpoint.Session.Quiet.
func quiet() (moved func() bool, ok bool) {
	turns, err := checkpoint.OpenTurns(turnsFile, slots)
	if err != nil {
		return nil, false
	}
	return turns.Quiet(func(slot int) bool {
		f, err := os.OpenFile(slotPath(slot), os.O_RDONLY, 0)
		if err != nil {
			return false
		}
		defer f.Close()
		return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil
	})
}

// states is what a runner does for checkpoints: it says when commands run, notes those that have ended, and tells PID 1
// when a checkpoint is wanted. Nothing of it is on the way of a command.
type states struct {
	turns *checkpoint.Turns
	init  *initLine
	notes sync.WaitGroup // commands that are being noted

	mu   sync.Mutex
	soon *time.Timer // guarded by mu; a message to PID 1 that waits for a quiet moment
}

// snapDelay is how long after the end of a command PID 1 gets a message. Commands that follow one another share a message.
const snapDelay = 20 * time.Millisecond

// took notes that a command runs in slots, until over is called.
func (s *states) took(taken []int, release func()) (over func()) {
	for _, slot := range taken {
		s.turns.Begin(slot)
	}
	var once sync.Once
	return func() {
		once.Do(func() {
			for _, slot := range taken {
				s.turns.End(slot)
			}
			release()
		})
	}
}

// ended notes a command.
func (s *states) ended(req *wire.Request) {
	if req.Path != "" || !checkpoint.Wanted(wire.CheckpointDir) {
		return
	}
	var c wire.CheckpointCommand
	if req.Origin != nil {
		c = *req.Origin
	}
	if checkpoint.Note(wire.CheckpointDir, c) != nil {
		return // the disk is full, say: the next command that can be noted has both covered
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.soon == nil {
		s.soon = time.AfterFunc(snapDelay, s.init.snap)
	} else {
		s.soon.Reset(snapDelay)
	}
}

// leave tells PID 1 now what was to be told later. It is called before this process ends.
func (s *states) leave() {
	s.notes.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.soon != nil && s.soon.Stop() {
		s.init.snap()
	}
}

// whole finishes an undo that was interrupted, before a process sees half of it.
func whole(req *wire.Request) error {
	if req.Path == wire.RunnerPath && len(req.Args) > 0 && wire.Verb(req.Args[0]) == wire.VerbCheckpoint || !checkpoint.Interrupted(wire.CheckpointDir) {
		return nil
	}
	said, err := os.CreateTemp("/tmp", "mend")
	if err != nil {
		said = os.Stderr
	} else {
		defer said.Close()
		_ = os.Remove(said.Name())
	}
	p, err := os.StartProcess(wire.RunnerPath, []string{"runner", string(wire.VerbMend)}, &os.ProcAttr{Files: []*os.File{nil, nil, said}})
	if err != nil {
		return err
	}
	state, err := p.Wait()
	if err == nil && !state.Success() {
		text := make([]byte, 1<<10)
		n, _ := said.ReadAt(text, 0)
		err = fmt.Errorf("%s", text[:n])
	}
	return err
}

// snapper starts the verb snap for PID 1, one at a time.
type snapper struct {
	wanted chan struct{} // a token when a checkpoint is wanted
	ended  chan struct{} // a token when the last one has ended

	running, again bool // of PID 1's main loop
}

func newSnapper() *snapper {
	return &snapper{wanted: make(chan struct{}, 1), ended: make(chan struct{}, 1)}
}

// start starts one, now or when the last one has ended. If that fails, the next command's end has it tried again.
func (s *snapper) start() {
	if s.running {
		s.again = true
		return
	}
	r, w, err := os.Pipe()
	if err != nil {
		return
	}
	defer w.Close()
	p, err := os.StartProcess(wire.RunnerPath, []string{"runner", string(wire.VerbSnap)}, &os.ProcAttr{
		Files: []*os.File{nil, nil, nil, w}, Sys: &unix.SysProcAttr{Setsid: true},
	})
	if err != nil {
		r.Close()
		return
	}
	_ = p.Release() // PID 1 reaps all
	s.running = true
	go func() { // until the process has ended, or was killed
		_, _ = r.Read(make([]byte, 1))
		r.Close()
		token(s.ended)
	}()
}

// over is called when the last one has ended.
func (s *snapper) over() {
	s.running = false
	if s.again {
		s.again = false
		s.start()
	}
}
