//go:build unix

package sink

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A store keeps nothing in, and reads nothing of, a directory that another user has
// put there or could exchange.
func TestStoreForeign(t *testing.T) {
	t.Parallel()
	root := os.Geteuid() == 0
	for name, row := range map[string]struct {
		make func(t *testing.T, base string) string // what goes wrong, and the store's directory
		want string                                 // of the refusal; "" for none
		root bool                                   // only root can make it
	}{
		"not there": {func(t *testing.T, base string) string {
			t.Helper()
			return filepath.Join(base, "a", "b")
		}, "", false},
		"our own": {func(t *testing.T, base string) string {
			t.Helper()
			return mkdir(t, base, "a", 0o700)
		}, "", false},
		"closed, shared": {func(t *testing.T, base string) string {
			t.Helper()
			return mkdir(t, base, "a", 0o755)
		}, "", false},
		"open to others": {func(t *testing.T, base string) string {
			t.Helper()
			return mkdir(t, base, "a", 0o777)
		}, "can be written by others", false},
		"open, sticky": {func(t *testing.T, base string) string {
			t.Helper()
			return mkdir(t, base, "a", 0o777|os.ModeSticky)
		}, "can be written by others", false},
		"parent open": {func(t *testing.T, base string) string {
			t.Helper()
			return mkdir(t, mkdir(t, base, "p", 0o777), "a", 0o700)
		}, "can be written by others", false},
		"parent open, made": {func(t *testing.T, base string) string {
			t.Helper()
			return filepath.Join(mkdir(t, base, "p", 0o777), "a", "b")
		}, "can be written by others", false},
		"parent sticky": {func(t *testing.T, base string) string {
			t.Helper()
			return mkdir(t, mkdir(t, base, "p", 0o777|os.ModeSticky), "a", 0o700)
		}, "", false},
		"a link": {func(t *testing.T, base string) string {
			t.Helper()
			return link(t, mkdir(t, base, "real", 0o700), filepath.Join(base, "a"))
		}, "is a symbolic link", false},
		"a link to nothing": {func(t *testing.T, base string) string {
			t.Helper()
			return link(t, filepath.Join(base, "none"), filepath.Join(base, "a"))
		}, "is a symbolic link", false},
		"behind a link of ours": {func(t *testing.T, base string) string {
			t.Helper()
			return filepath.Join(link(t, mkdir(t, base, "real", 0o700), filepath.Join(base, "l")), "a")
		}, "", false},
		"a link behind a link": {func(t *testing.T, base string) string {
			t.Helper()
			target := mkdir(t, base, "real", 0o700)
			link(t, mkdir(t, base, "other", 0o700), filepath.Join(target, "a"))
			return filepath.Join(link(t, target, filepath.Join(base, "l")), "a")
		}, "is a symbolic link", false},
		"behind a link to an open place": {func(t *testing.T, base string) string {
			t.Helper()
			return filepath.Join(link(t, mkdir(t, base, "open", 0o777), filepath.Join(base, "l")), "a")
		}, "can be written by others", false},
		"another's": {func(t *testing.T, base string) string {
			t.Helper()
			return give(t, mkdir(t, base, "a", 0o700))
		}, "belongs to user 4711", true},
		"another's parent": {func(t *testing.T, base string) string {
			t.Helper()
			p := mkdir(t, base, "p", 0o755)
			mkdir(t, p, "a", 0o700)
			return filepath.Join(give(t, p), "a")
		}, "belongs to user 4711", true},
		"behind another's link": {func(t *testing.T, base string) string {
			t.Helper()
			l := link(t, mkdir(t, base, "real", 0o700), filepath.Join(base, "l"))
			return filepath.Join(give(t, l), "a")
		}, "is a symbolic link of user 4711", true},
		"another's group": {func(t *testing.T, base string) string {
			t.Helper()
			dir := mkdir(t, base, "a", 0o770)
			if err := os.Chown(dir, os.Getuid(), 4711); err != nil {
				t.Fatal(err)
			}
			return dir
		}, "can be written by others", true},
	} {
		if row.root && !root {
			continue
		}
		dir := row.make(t, t.TempDir())
		s := storeIn(t, dir)
		session, err := s.Session("s1")
		if err != nil {
			t.Fatal(err)
		}
		_, err = session.next()
		_, listErr := s.List("")
		if row.want == "" {
			if err != nil || listErr != nil {
				t.Errorf("%s: %v, %v; want it taken", name, err, listErr)
			}
			continue
		}
		if err := s.Forget("s1"); err != nil {
			t.Errorf("%s: Forget() = %v; want nil: there is nothing of ours", name, err)
		}
		for _, err := range []error{err, listErr} {
			if e, ok := errors.AsType[*ForeignDirError](err); !ok || !strings.Contains(e.Error(), row.want) {
				t.Errorf("%s: %v; want it refused, because it %s", name, err, row.want)
			}
		}
		if names, _ := filepath.Glob(filepath.Join(dir, "*")); len(names) > 0 {
			t.Errorf("%s: %q was made", name, names)
		}
	}
}

// The directory of a session may have been made by another user, in a sticky place.
func TestStoreForeignSession(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a directory away")
	}
	dir := t.TempDir()
	give(t, mkdir(t, dir, "s1", 0o700))
	s := storeIn(t, dir)
	session, err := s.Session("s1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.next(); err == nil || !strings.Contains(err.Error(), "belongs to user 4711") {
		t.Errorf("next() = %v; want it refused", err)
	}
}

func mkdir(t *testing.T, parent, name string, mode os.FileMode) string {
	t.Helper()
	dir := filepath.Join(parent, name)
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, mode)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func link(t *testing.T, to, at string) string {
	t.Helper()
	if err := os.Symlink(to, at); err != nil {
		t.Fatal(err)
	}
	return at
}

func give(t *testing.T, path string) string {
	t.Helper()
	if err := os.Lchown(path, 4711, 4711); err != nil {
		t.Fatal(err)
	}
	return path
}

func storeIn(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := NewStore(dir, StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
