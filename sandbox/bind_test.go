package sandbox

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/engine"
)

func TestPlaceOf(t *testing.T) {
	t.Parallel()
	const table = `22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:27 / /tmp rw - tmpfs tmpfs rw
31 22 8:2 /home /home rw - ext4 /dev/sda2 rw
32 31 8:1 /srv/my\040work /home/me/work rw - ext4 /dev/sda1 rw
33 30 0:99 / /tmp rw - overlay overlay rw
`
	for _, test := range []struct {
		dir  string
		want location
	}{
		{"/", location{"8:1", "/"}},
		{"/etc/x", location{"8:1", "/etc/x"}},
		{"/home", location{"8:2", "/home"}},
		{"/home/me", location{"8:2", "/home/me"}},
		{"/home/me/work/a", location{"8:1", "/srv/my work/a"}},
		{"/home/me/workers", location{"8:2", "/home/me/workers"}},
		{"/tmp/a", location{"0:99", "/a"}}, // the later mount is above
		{"/tmpfiles", location{"8:1", "/tmpfiles"}},
	} {
		if got, ok := locationOf(table, test.dir); !ok || got != test.want {
			t.Errorf("locationOf(%s) = %v, %v; want %v", test.dir, got, ok, test.want)
		}
	}
	if got, ok := locationOf("", "/"); ok {
		t.Errorf("locationOf(no table) = %v; want none", got)
	}
}

// A bound directory that is another one to the engine is refused, by what can be
// seen and not by what things look like.
func TestForeignBind(t *testing.T) {
	t.Parallel()
	noPlace := regexp.MustCompile(`(?m)^place=.*\n`)
	for _, test := range []struct {
		name    string
		report  func(string) string
		shared  bool // files of one side are there on the other
		foreign bool
		probed  bool
	}{
		{"this kernel", nil, false, false, false},
		{"the same path on another file system", func(r string) string { return noPlace.ReplaceAllString(r, "place=/w 254:77 /w\n") }, false, true, true},
		{"a later mount hides it", func(r string) string { return r + "place=/w 254:77 /w\n" }, false, true, true},
		{"a virtual machine that shares it", func(r string) string { return noPlace.ReplaceAllString(r, "place=/w 0:42 /\n") }, true, false, true},
		{"nothing is known of mounts", func(r string) string { return noPlace.ReplaceAllString(r, "") }, true, false, true},
		{"nothing is known, and it is another", func(r string) string { return noPlace.ReplaceAllString(r, "") }, false, true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			d := newFakeEngine(t)
			d.report = test.report
			probed := false
			d.pull = func(at string) []byte {
				probed = true
				if path.Dir(at) != "/w" || !test.shared {
					return archiveOf(t, "other", "of the engine's machine")
				}
				text, err := os.ReadFile(filepath.Join(dir, path.Base(at)))
				if err != nil {
					t.Error(err)
				}
				return archiveOf(t, path.Base(at), string(text))
			}
			e := New(d, &fakeImages{}, Options{})
			s, err := e.Start(t.Context(), Spec{Profile: Dev, Workspace: Workspace{Kind: WorkspaceBind, Dir: dir, Target: "/w"}})
			var foreign *ForeignBindError
			if errors.As(err, &foreign) != test.foreign || (err != nil) != test.foreign || probed != test.probed {
				t.Errorf("Start() = %v, with a file to try: %v; want a ForeignBindError: %v, and a file: %v", err, probed, test.foreign, test.probed)
			}
			if hint, about := HintOf(err); test.foreign && (hint != HintCopy || about != dir) {
				t.Errorf("HintOf(%v) = %q, %q; want a copy of %s", err, hint, about, dir)
			}
			if s != nil {
				if err := s.Stop(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left in the directory: %v, %v", left, err)
			}
			if left := d.left(); len(left) > 0 {
				t.Errorf("sessions left: %v", left)
			}
			if err := e.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func archiveOf(t *testing.T, name, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: int64(len(text)), Mode: 0o644})
	if err == nil {
		_, err = w.Write([]byte(text))
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Error(err)
	}
	return b.Bytes()
}

// On engines that map users a bound directory is refused where commands could not write it.
func TestOwnsBind(t *testing.T) {
	t.Parallel()
	rootless, remapped := engine.Info{Rootless: true}, engine.Info{Remapped: true}
	bind := Workspace{Kind: WorkspaceBind, Dir: "/src"}
	readOnly := bind
	readOnly.ReadOnly = true
	for _, tt := range []struct {
		name      string
		info      engine.Info
		profile   Profile
		workspace Workspace
		want      string // a part of the error; "": none
	}{
		{"an ordinary engine", engine.Info{}, Strict, bind, ""},
		{"rootless", rootless, Strict, bind, "the engine is rootless"},
		{"rootless, as its user", rootless, Dev, bind, ""},
		{"rootless, to read", rootless, Strict, readOnly, ""},
		{"rootless, a copy", rootless, Strict, Workspace{Kind: WorkspaceCopy, Dir: "/src"}, ""},
		{"userns-remap", remapped, Strict, bind, "userns-remap"},
		{"userns-remap, uid 0", remapped, Dev, bind, "userns-remap"},
	} {
		err := (&Spec{Profile: tt.profile, Workspace: tt.workspace}).ownsBind(tt.info)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: ownsBind() = %v; want %q", tt.name, err, tt.want)
		}
		if hint, about := HintOf(err); err != nil && (hint != HintMapped || about != "/src" || Judge(err).Fault != FaultInput) {
			t.Errorf("%s: hint %q about %q, %+v; want a hint to copy /src, and the input's fault", tt.name, hint, about, Judge(err))
		}
	}
}
