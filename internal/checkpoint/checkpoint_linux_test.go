package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// lab is a workspace with a store.
type lab struct {
	t    *testing.T
	root string
	dir  string
	s    Session
	set  wire.CheckpointSettings
}

// labUser is who the workspace belongs to, where the tests run as uid 0: as in a session.
const labUser = 12345

func newLab(t *testing.T) *lab {
	t.Helper()
	root, err := os.MkdirTemp("", "undo") //nolint:usetesting // t.TempDir is in directories that another user cannot enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = filepath.WalkDir(root, func(path string, d os.DirEntry, _ error) error {
			if d != nil && d.IsDir() {
				_ = os.Chmod(path, 0o700)
			}
			return nil
		})
		_ = os.RemoveAll(root)
	})
	return openLab(t, root)
}

func openLab(t *testing.T, root string) *lab {
	t.Helper()
	l := &lab{t: t, root: root, dir: filepath.Join(root, "w")}
	l.set = wire.CheckpointSettings{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Dir: l.dir, Disk: 1 << 30, MaxFile: 64 << 20, Automatic: true}
	if os.Getuid() == 0 {
		l.set.UID, l.set.GID = labUser, labUser
		if err := os.Chmod(root, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(l.dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	if err := os.Chown(l.dir, int(l.set.UID), int(l.set.GID)); err != nil {
		t.Fatal(err)
	}
	l.s = Session{
		Store: filepath.Join(root, "store"),
		Hold:  func() (func(), bool) { return func() {}, true },
		Quiet: func() (func() bool, bool) { return never, true },
	}
	return l
}

// sh runs a script in the workspace, as its owner.
func (l *lab) sh(script string) {
	l.t.Helper()
	cmd := exec.CommandContext(l.t.Context(), "bash", "-ec", script)
	cmd.Dir = l.dir
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: l.set.UID, Gid: l.set.GID}}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

func (l *lab) ask(ask wire.CheckpointAsk) wire.CheckpointAnswer {
	l.t.Helper()
	ask.Settings = l.set
	var out bytes.Buffer
	if err := l.s.Answer(bytes.NewReader(ask.Append(nil)), &out); err != nil {
		l.t.Fatalf("%s: %v", ask.Do, err)
	}
	a, err := wire.ParseCheckpointAnswer(out.Bytes())
	if err != nil {
		l.t.Fatalf("%s: %v", ask.Do, err)
	}
	if _, err := os.Lstat(filepath.Join(l.s.Store, journalFile)); err == nil {
		l.t.Errorf("%s: a journal is left", ask.Do)
	}
	return a
}

// must is ask for what is not to be refused, and to be done as a whole.
func (l *lab) must(ask wire.CheckpointAsk) wire.CheckpointAnswer {
	l.t.Helper()
	a := l.ask(ask)
	if a.Refused != "" || len(a.Left) > 0 {
		l.t.Fatalf("%+v: refused %s: %s; left %v", ask, a.Refused, a.Text, a.Left)
	}
	return a
}

func (l *lab) take(name string) uint64 {
	l.t.Helper()
	return l.must(wire.CheckpointAsk{Do: wire.CheckpointTake, Name: name}).Made
}

// seen describes all that is in the workspace, in words of its own.
func (l *lab) seen() map[string]string {
	l.t.Helper()
	all := map[string]string{}
	inodes := map[uint64]string{}
	err := filepath.WalkDir(l.dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		name, _ := filepath.Rel(l.dir, path)
		text := fmt.Sprintf("mode %o owner %d:%d mtime %d", st.Mode, st.Uid, st.Gid, st.Mtim.Nano())
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" size %d sum %x", st.Size, sha256.Sum256(b))
			if st.Size > 1<<20 {
				text += fmt.Sprintf(" sparse %v", st.Blocks*512 < st.Size/2)
			}
			if st.Nlink > 1 {
				if inodes[st.Ino] == "" {
					inodes[st.Ino] = name
				}
				text += " first name " + inodes[st.Ino]
			}
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			x, err := packXattrs(int(f.Fd()))
			f.Close()
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" attributes %q", x)
		case unix.S_IFLNK:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			text += " to " + target
		}
		all[name] = text
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return all
}

func (l *lab) is(when string, want map[string]string) {
	l.t.Helper()
	got := l.seen()
	for name := range want {
		if got[name] != want[name] {
			l.t.Errorf("%s: %s is\n  %s; want\n  %s", when, name, got[name], want[name])
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			l.t.Errorf("%s: %s is there, and should not be", when, name)
		}
	}
}

const plenty = `
mkdir -p src/deep/er empty "odd name" readonly
echo one >src/a; echo two >src/b; echo three >src/deep/er/c; printf 'x\ny\n' >"odd name/new
line"
ln -s ../a src/deep/link; ln -s nowhere dangling
echo shared >hard1; ln hard1 src/hard2; ln hard1 zz
truncate -s 8M sparse; printf data | dd of=sparse bs=1 seek=3000000 conv=notrunc status=none
echo secret >src/private; chmod 600 src/private; chmod 4755 src/b; chmod 1777 empty
echo fixed >readonly/file; chmod 444 readonly/file; chmod 555 readonly
echo a.b >a.b; mkdir a; echo x >a/x; echo ab >ab
head -c 3000000 /dev/urandom >big
touch -d '2001-02-03 04:05:06.123456789' src/a src/deep "odd name" dangling
touch -hd '1999-01-01' src/deep/link
`

// changesOf are scripts that change what plenty has made, each in a way of its own.
var changesOf = map[string]string{
	"content":            `echo changed >src/a`,
	"same size":          `printf 'eno\n' >src/a`,
	"same size and time": `printf 'eno\n' >src/a; touch -d '2001-02-03 04:05:06.123456789' src/a`,
	"mode":               `chmod 640 src/a; chmod 700 src/deep`,
	"mode of top":        `chmod 711 .`,
	"time":               `touch -d '2010-10-10' src/a; touch -d '2011-11-11' src/deep`,
	"deleted":            `rm src/a dangling; rm -r src/deep`,
	"all deleted":        `chmod 755 readonly; rm -rf ./*`,
	"renamed":            `mv src code; mv ab src`,
	"file to directory":  `rm src/a; mkdir src/a; echo in >src/a/in`,
	"directory to file":  `rm -r src/deep; echo deep >src/deep`,
	"directory to link":  `rm -r src/deep; ln -s /etc src/deep`,
	"link to file":       `rm dangling; echo here >dangling`,
	"link elsewhere":     `ln -sfn elsewhere dangling`,
	"new":                `mkdir -p new/er; echo n >new/er/n; ln -s n new/er/l; mkfifo new/fifo; rm new/fifo`,
	"hard link broken":   `cp hard1 t; mv t src/hard2`,
	"hard link content":  `echo more >>zz`,
	"hard link first":    `rm hard1`,
	"hard link all":      `rm hard1 src/hard2 zz`,
	"hard link new":      `ln hard1 a0; ln src/a src/a2`,
	"hard link moved":    `mv zz aa`,
	"hard link joined":   `rm src/b; ln src/a src/b`,
	"sparse":             `printf more | dd of=sparse bs=1 seek=6000000 conv=notrunc status=none`,
	"sparse gone":        `rm sparse`,
	"truncated":          `: >big`,
	"readonly":           `chmod 755 readonly; rm -f readonly/file; echo new >readonly/other; chmod 500 readonly`,
	"unwritable":         `chmod 000 src/private; chmod 400 src/b`,
	"empty directory":    `rmdir empty; mkdir empty2`,
	"order":              `rm -r a; echo x >a; rm a.b; mkdir a.b; echo y >a.b/y`,
	"git":                `git init -q . 2>/dev/null || mkdir .git; echo x >.git/x`,
}

func TestUndoRedo(t *testing.T) {
	t.Parallel()
	for name, script := range changesOf {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.sh(plenty)
			first := l.must(wire.CheckpointAsk{Do: wire.CheckpointInit}).Made
			was := l.seen()
			l.sh(script)
			now := l.seen()
			if reflect.DeepEqual(was, now) {
				t.Fatal("the script changes nothing")
			}
			dry := l.must(wire.CheckpointAsk{Do: wire.CheckpointUndo, DryRun: true})
			l.is("dry run", now)
			done := l.must(wire.CheckpointAsk{Do: wire.CheckpointUndo})
			if dry.To != first || done.To != first || !reflect.DeepEqual(dry.Changes, done.Changes) {
				t.Errorf("undo to %d of %v; dry run to %d of %v", done.To, done.Changes, dry.To, dry.Changes)
			}
			l.is("undo", was)
			if a := l.must(wire.CheckpointAsk{Do: wire.CheckpointTake}); a.Made != 0 {
				t.Errorf("a checkpoint after the undo has found %+v", a.State.List[len(a.State.List)-1])
			}
			l.must(wire.CheckpointAsk{Do: wire.CheckpointRedo})
			l.is("redo", now)
			l.must(wire.CheckpointAsk{Do: wire.CheckpointRestore, ID: first})
			l.is("restore", was)
			l.must(wire.CheckpointAsk{Do: wire.CheckpointUndo})
			l.is("undo of the restore", now)
		})
	}
}

// Attributes need a file system that has them.
func TestAttributes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.sh(plenty)
	name := filepath.Join(l.dir, "src", "a")
	if err := unix.Setxattr(name, "user.one", []byte("1"), 0); errors.Is(err, unix.ENOTSUP) {
		t.Skip("the file system of the temporary directory has no attributes")
	}
	l.take("")
	was := l.seen()
	if err := errors.Join(unix.Setxattr(name, "user.two", []byte("2\x00"), 0), unix.Setxattr(name, "user.one", []byte("other"), 0)); err != nil {
		t.Fatal(err)
	}
	l.must(wire.CheckpointAsk{Do: wire.CheckpointUndo})
	l.is("undo", was)
	if err := unix.Removexattr(name, "user.one"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(l.dir, "src", "b")); err != nil {
		t.Fatal(err)
	}
	l.must(wire.CheckpointAsk{Do: wire.CheckpointUndo})
	l.is("second undo", was)
}

func TestHistory(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.must(wire.CheckpointAsk{Do: wire.CheckpointInit})
	var states []map[string]string
	for i := range 6 {
		states = append(states, l.seen())
		l.sh(fmt.Sprintf("echo %d >f; echo %d >f%d; mkdir d%d", i, i, i, i))
		l.take("")
	}
	states = append(states, l.seen())
	l.must(wire.CheckpointAsk{Do: wire.CheckpointUndo, Steps: 3})
	l.is("undo 3", states[3])
	l.must(wire.CheckpointAsk{Do: wire.CheckpointRedo, Steps: 2})
	l.is("redo 2", states[5])
	for i := range states {
		l.must(wire.CheckpointAsk{Do: wire.CheckpointRestore, ID: uint64(i + 1)})
		l.is(fmt.Sprintf("restore %d", i+1), states[i])
	}
	if a := l.ask(wire.CheckpointAsk{Do: wire.CheckpointRedo}); a.Refused != wire.CheckpointGone {
		t.Errorf("redo after a restore: %q; want a refusal", a.Refused)
	}
	l.sh("echo other >f")
	if a := l.ask(wire.CheckpointAsk{Do: wire.CheckpointUndo, Steps: 100}); a.Refused != wire.CheckpointGone {
		t.Errorf("undo 100: %q; want a refusal", a.Refused)
	}
	if a := l.ask(wire.CheckpointAsk{Do: wire.CheckpointRestore, ID: 999}); a.Refused != wire.CheckpointGone {
		t.Errorf("restore 999: %q; want a refusal", a.Refused)
	}
	a := l.must(wire.CheckpointAsk{Do: wire.CheckpointDiff, ID: 1, To: 3})
	var got []string
	for _, c := range a.Changes {
		if c.Path != "" {
			got = append(got, c.Path+" "+c.Was.Kind+">"+c.Now.Kind)
		}
	}
	if want := []string{"d0 >d", "d1 >d", "f >f", "f0 >f", "f1 >f"}; !slices.Equal(got, want) {
		t.Errorf("diff 1 3 = %q; want %q", got, want)
	}
}

// A checkpoint that is written elsewhere is as the workspace was.
func TestMaterialize(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.sh(plenty)
	l.take("")
	states := []map[string]string{l.seen()}
	for _, name := range []string{"all deleted", "directory to file", "hard link moved", "order"} {
		l.must(wire.CheckpointAsk{Do: wire.CheckpointRestore, ID: 1})
		l.sh(changesOf[name])
		l.take("")
		states = append(states, l.seen())
	}
	list := l.must(wire.CheckpointAsk{Do: wire.CheckpointList}).State.List
	n := 0
	for _, c := range list {
		if c.Why == "restore" {
			continue
		}
		to := openLab(t, l.root)
		to.dir = filepath.Join(l.root, fmt.Sprint("to", c.ID))
		if err := errors.Join(os.Mkdir(to.dir, 0o755), os.Chown(to.dir, int(l.set.UID), int(l.set.GID))); err != nil {
			t.Fatal(err)
		}
		args := wire.VerbMaterialize.Command(&wire.MaterializeArgs{UID: l.set.UID, GID: l.set.GID, Store: l.s.Store, ID: fmt.Sprint(c.ID), Dir: to.dir})
		if err := Materialize(args[1:]); err != nil {
			t.Fatal(err)
		}
		to.is(fmt.Sprintf("checkpoint %d", c.ID), states[n])
		n++
	}
	if n != len(states) {
		t.Errorf("%d checkpoints; want %d", n, len(states))
	}
}

func TestRestorePaths(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.sh(plenty)
	first := l.take("base")
	was := l.seen()
	l.sh(`rm -r src; echo x >big; echo y >ab`)
	now := l.seen()
	l.must(wire.CheckpointAsk{Do: wire.CheckpointRestore, ID: first, Paths: []string{"src/deep", "ab"}})
	got := l.seen()
	for _, name := range []string{"src/deep/er/c", "src/deep/link", "src/deep", "ab"} {
		if got[name] != was[name] {
			t.Errorf("%s is %s; want %s", name, got[name], was[name])
		}
	}
	if got["big"] != now["big"] || got["src/a"] != "" {
		t.Error("a file was restored that was not asked for")
	}
	l.must(wire.CheckpointAsk{Do: wire.CheckpointUndo})
	l.is("undo", now)
}

func TestLeftOut(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.set.Exclude, l.set.MaxFile, l.set.Gitignore = []string{"node_modules", "*.log", "!keep.log", "/build/"}, 1000, true
	l.sh(`mkdir -p node_modules/x build src/build sub; echo n >node_modules/x/n; echo b >build/b; echo s >src/build/s
echo l >a.log; echo k >keep.log; head -c 2000 /dev/zero >large; mkfifo fifo; echo hidden >unreadable; chmod 200 unreadable
echo '*.tmp' >sub/.gitignore; echo t >sub/t.tmp; echo t >t.tmp`)
	if os.Getuid() == 0 {
		if err := os.WriteFile(filepath.Join(l.dir, "roots"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	a := l.must(wire.CheckpointAsk{Do: wire.CheckpointInit})
	var got []string
	for _, u := range a.State.Uncovered {
		got = append(got, u.Path)
	}
	want := []string{"a.log", "build", "fifo", "large", "node_modules", "sub/t.tmp", "unreadable"}
	if os.Getuid() == 0 {
		want = slices.Insert(want, 5, "roots")
	}
	if !slices.Equal(got, want) {
		t.Errorf("uncovered: %q; want %q", got, want)
	}
	l.sh(`rm keep.log src/build/s t.tmp; echo more >>a.log; rm node_modules/x/n; echo grown >>large; rm -f unreadable; echo new >b.log`)
	undone := l.ask(wire.CheckpointAsk{Do: wire.CheckpointUndo})
	for _, name := range []string{"keep.log", "src/build/s", "t.tmp"} {
		if _, err := os.Lstat(filepath.Join(l.dir, name)); err != nil {
			t.Errorf("undo has not brought back %s", name)
		}
	}
	for name, want := range map[string]string{"a.log": "l\nmore\n", "b.log": "new\n"} {
		if b, _ := os.ReadFile(filepath.Join(l.dir, name)); string(b) != want {
			t.Errorf("undo has changed %s, which is left out", name)
		}
	}
	got = nil
	for _, u := range undone.Left {
		got = append(got, u.Path)
	}
	if want := []string{"large", "unreadable"}; !slices.Equal(got, want) {
		t.Errorf("left by the undo: %q; want %q", undone.Left, want)
	}
}

// What no checkpoint knows is never replaced.
func TestUnknownStays(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.set.Exclude = []string{"*.x"}
	l.sh(`mkdir d; echo f >d/f`)
	l.take("")
	l.sh(`rm -r d; mkdir d; echo mine >d/f.x; rm -rf d/f; mkdir e; echo mine >e/f.x`)
	a := l.ask(wire.CheckpointAsk{Do: wire.CheckpointUndo})
	if a.Refused != "" || len(a.Left) == 0 || a.Left[0].Path != "e" {
		t.Errorf("left: %v, refused %q; want e", a.Left, a.Text)
	}
	for name, want := range map[string]string{"d/f": "f\n", "d/f.x": "mine\n", "e/f.x": "mine\n"} {
		if b, _ := os.ReadFile(filepath.Join(l.dir, name)); string(b) != want {
			t.Errorf("%s is %q; want %q", name, b, want)
		}
	}
}

func TestBounded(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.set.Disk = 1 << 20
	l.sh(`head -c 100000 /dev/urandom >keep`)
	l.must(wire.CheckpointAsk{Do: wire.CheckpointInit})
	var a wire.CheckpointAnswer
	for range 30 {
		l.sh(`head -c 100000 /dev/urandom >f`)
		a = l.must(wire.CheckpointAsk{Do: wire.CheckpointTake})
	}
	if a.State.Dropped == 0 || a.State.Used > l.set.Disk {
		t.Errorf("dropped %d, used %d of %d", a.State.Dropped, a.State.Used, l.set.Disk)
	}
	s, err := open(l.s.Store, unix.LOCK_EX)
	if err != nil {
		t.Fatal(err)
	}
	used, err := s.used()
	s.close()
	if err != nil || uint64(used) != a.State.Used {
		t.Errorf("the contents take %d bytes, %v; the state says %d", used, err, a.State.Used)
	}
	was := l.seen()
	l.sh(`rm keep f`)
	l.must(wire.CheckpointAsk{Do: wire.CheckpointUndo})
	l.is("undo", was)
	l.sh(`head -c 3000000 /dev/urandom >huge`)
	if a := l.ask(wire.CheckpointAsk{Do: wire.CheckpointTake}); a.Refused != wire.CheckpointFull {
		t.Errorf("a file that is larger than all may be: %q %s; want a refusal", a.Refused, a.Text)
	}
	fresh := newLab(t)
	fresh.set.Disk = 1 << 20
	fresh.sh(`head -c 3000000 /dev/urandom >huge`)
	if a := fresh.ask(wire.CheckpointAsk{Do: wire.CheckpointInit}); a.Refused != wire.CheckpointFull || a.State.Off == "" {
		t.Errorf("a first checkpoint that is too large: %q, off %q; want a refusal", a.Refused, a.State.Off)
	}
}

func TestSnap(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.must(wire.CheckpointAsk{Do: wire.CheckpointInit})
	if !Wanted(l.s.Store) || Interrupted(l.s.Store) {
		t.Fatal("no checkpoints are wanted after init, or an undo is under way")
	}
	snap := func() wire.CheckpointState {
		t.Helper()
		if err := l.s.Snap(); err != nil {
			t.Fatal(err)
		}
		return l.ask(wire.CheckpointAsk{Do: wire.CheckpointList}).State
	}
	note := func(id string) {
		t.Helper()
		if err := Note(l.s.Store, wire.CheckpointCommand{ID: id, Text: "text of " + id}); err != nil {
			t.Fatal(err)
		}
	}
	l.sh("echo x >f")
	if s := snap(); len(s.List) != 1 {
		t.Errorf("without a command: %d checkpoints; want 1", len(s.List))
	}
	note("c1")
	note("c2")
	l.s.Quiet = func() (func() bool, bool) { return func() bool { return true }, true }
	if s := snap(); len(s.List) != 1 {
		t.Errorf("while a command starts: %d checkpoints; want 1", len(s.List))
	}
	l.s.Quiet = func() (func() bool, bool) { return never, true }
	s := snap()
	if len(s.List) != 2 || !reflect.DeepEqual(s.List[1].Commands, []wire.CheckpointCommand{{ID: "c1", Text: "text of c1"}, {ID: "c2", Text: "text of c2"}}) {
		t.Errorf("after two commands: %+v", s.List)
	}
	note("c3")
	if s := snap(); len(s.List) != 2 {
		t.Errorf("after a command that changed nothing: %d checkpoints; want 2", len(s.List))
	}
	if a := l.ask(wire.CheckpointAsk{Do: wire.CheckpointList}); len(a.Pending) != 0 {
		t.Errorf("pending: %v; want none", a.Pending)
	}
}

func TestTurns(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "turns")
	if err := os.WriteFile(path, make([]byte, TurnsSize(8)), 0o600); err != nil {
		t.Fatal(err)
	}
	a, errA := OpenTurns(path, 8)
	b, errB := OpenTurns(path, 8)
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	locked := func(int) bool { return false }
	moved, ok := b.Quiet(locked)
	if !ok || moved() {
		t.Fatal("not quiet at the start")
	}
	a.Begin(3)
	if _, ok := b.Quiet(locked); ok || !moved() {
		t.Error("quiet while a command runs")
	}
	a.End(3)
	if _, ok := b.Quiet(locked); !ok || !moved() {
		t.Error("not quiet after the end")
	}
	a.Begin(3) // and its runner is killed
	if moved, ok = b.Quiet(func(slot int) bool { return slot == 3 }); !ok {
		t.Error("not quiet after the end of a runner")
	}
	a.Begin(3)
	if !moved() {
		t.Error("a start after the end of a runner is not seen")
	}
	a.End(3)
	if _, ok = b.Quiet(locked); !ok {
		t.Error("not quiet at the end")
	}
}

func TestBefore(t *testing.T) {
	t.Parallel()
	list := []string{"", "a", "a/b", "a/b/c", "a/b.c", "a.b", "a0", "b"}
	for i := range list {
		for j := range list {
			if got := before(list[i], list[j]); got != (i < j) {
				t.Errorf("before(%q, %q) = %v", list[i], list[j], got)
			}
		}
	}
}

func TestDamagedStore(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.sh("echo x >f")
	l.take("")
	head := filepath.Join(l.s.Store, "head.1")
	b, err := os.ReadFile(head)
	if err != nil {
		t.Fatal(err)
	}
	for n := range b {
		if err := os.WriteFile(head, b[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		ask := wire.CheckpointAsk{Do: wire.CheckpointDiff, ID: 1, Settings: l.set}
		if err := l.s.Answer(bytes.NewReader(ask.Append(nil)), &bytes.Buffer{}); !errors.Is(err, errStore) {
			t.Fatalf("a manifest of which %d of %d bytes are left: %v; want errStore", n, len(b), err)
		}
	}
}

// The entry of a change is as it was before it was written.
func TestRecords(t *testing.T) {
	t.Parallel()
	entries := []entry{
		{name: "", kind: dir, mode: 0o755, mtime: -1},
		{name: "a", kind: file, left: leftLarge, mode: 0o7777, size: 1 << 40, mtime: 1 << 60, sum: sum{1, 2, 31: 9}, xattrs: "x", leader: "b", stamp: stamp{ctime: 7, ino: 1 << 63, racy: true}},
		{name: "l", kind: link, mode: 0o777, target: strings.Repeat("t", 4000)},
		{name: "s", kind: other, left: leftKind},
	}
	for _, e := range entries {
		f := fields{b: e.append(nil, true)}
		if got := f.entry(true); f.err != nil || got != e || len(f.b) > 0 {
			t.Errorf("entry %+v is read as %+v, %v", e, got, f.err)
		}
	}
	c := change{was: entries[1], now: entries[2]}
	c.was.stamp = stamp{}
	f := fields{b: c.append(nil)}
	if got := f.change(); got != c || f.err != nil {
		t.Errorf("change %+v is read as %+v, %v", c, got, f.err)
	}
}

var (
	kills     = flag.Int("kills", 12, "how often TestKilled kills a restore")
	helperFor = flag.String("undo-helper", "", "of TestKilled: undo or redo in this directory")
)

// TestKilled kills undos and redos at random points. What is there then is the old state or the new one, once the
// next command would start. `make undo-kills` does it 200 times.
func TestKilled(t *testing.T) {
	if *helperFor != "" {
		l := openLab(t, *helperFor)
		fmt.Println("begin")
		for _, do := range []string{wire.CheckpointUndo, wire.CheckpointRedo} {
			ask := wire.CheckpointAsk{Do: do, Settings: l.set}
			if err := l.s.Answer(bytes.NewReader(ask.Append(nil)), &bytes.Buffer{}); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	l := newLab(t)
	l.sh(plenty + `for i in $(seq 60); do mkdir -p many/$((i%7)); echo $i >many/$((i%7))/$i; done`)
	l.take("")
	was := l.seen()
	l.sh(`rm -r src many; echo x >many; mkdir src; echo new >src/a; rm zz; echo more >>sparse; chmod 755 readonly; rm -rf readonly
for i in $(seq 60); do mkdir -p other/$((i%5)); echo $i >other/$((i%5))/$i; done; ln -s x dangling2`)
	l.take("")
	now := l.seen()
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	var longest time.Duration // of an undo and a redo
	old, fresh, journals := 0, 0, 0
	for n := range *kills + 1 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilled$", "-undo-helper="+l.root)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if n > 0 { // the first one is timed
			time.AfterFunc(time.Duration(r.Int64N(int64(longest))), func() { _ = cmd.Process.Kill() }) // a no-op once it has ended
		}
		if err := cmd.Wait(); err == nil {
			longest = max(longest/2, time.Since(start))
		}
		if Interrupted(l.s.Store) {
			journals++
		}
		if err := l.s.Mend(); err != nil {
			t.Fatalf("kill %d: %v", n, err)
		}
		switch got := l.seen(); {
		case reflect.DeepEqual(got, was):
			old++
			a := l.ask(wire.CheckpointAsk{Do: wire.CheckpointRedo})
			if a.Refused == wire.CheckpointGone { // it was killed after the state was that, and before it was said so
				t.Fatalf("kill %d: the former state is there, and cannot be redone: %s", n, a.Text)
			}
			l.is("redo", now)
		case reflect.DeepEqual(got, now):
			fresh++
		default:
			l.is(fmt.Sprintf("kill %d: neither state", n), now)
			t.Fatal("a mixture")
		}
	}
	t.Logf("%d kills: %d times the former state, %d times the later one; %d restores were interrupted", *kills, old, fresh, journals)
}
