package transfer

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// folding makes a directory on a file system that does not tell capitals from small letters. It lists all
// names in small letters.
func folding(t *testing.T) string {
	t.Helper()
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 16<<20)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"mkntfs", "-F", "-q", "-Q", image},
		{"lowntfs-3g", "-o", "ignore_case,permissions", image, dir},
	} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("a file system that does not tell capitals from small letters, of the package ntfs-3g: %s: %v\n%s", args[0], err, out)
		}
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Where names are one that the session tells apart, nothing is lost and nothing is half written: the names are
// a conflict that says why, before anything is written.
func TestFoldedNames(t *testing.T) {
	t.Parallel()
	disk := folding(t)
	type tr = map[string]string
	for i, row := range []struct {
		name                    string
		was, here, theirs, want tr
		clash                   string
	}{
		{"modified", tr{"readme": "1"}, tr{"readme": "1"}, tr{"readme": "2", "New": "1"}, tr{"readme": "2", "new": "1"}, ""},
		{"another spelling", tr{"readme": "1"}, tr{"readme": "1"}, tr{"readme": "1", "README": "2"}, nil, "README (here it is another spelling"},
		{"renamed by its case", tr{"readme": "1"}, tr{"readme": "1"}, tr{"README": "1"}, nil, "README (here it is another spelling"},
		{"another spelling of a directory", tr{"dir/f": "1"}, tr{"dir/f": "1"}, tr{"dir/f": "1", "Dir/f": "2"}, nil, "Dir (here it is another spelling"},
		{"of one that is made here", tr{"f": "1"}, tr{"f": "1", "mine": "1"}, tr{"f": "1", "Mine": "1"}, nil, "Mine (here it is another spelling"},
		{"two new files", tr{"f": "1"}, tr{"f": "1"}, tr{"f": "2", "a": "1", "A": "2"}, nil, "a (it and A are one name on this file system)"},
		{"two new links", tr{"f": "1"}, tr{"f": "1"}, tr{"f": "2", "a -> f": "", "A -> f": ""}, nil, "a (it and A are one name on this file system)"},
		{"two new directories", tr{"f": "1"}, tr{"f": "1"}, tr{"f": "2", "d/x": "1", "D/y": "2"}, nil, "d (it and D are one name on this file system)"},
	} {
		d := newThree(t, row.was, nil, row.theirs)
		d.here = filepath.Join(disk, string(rune('0'+i)))
		if err := os.Mkdir(d.here, 0o755); err != nil {
			t.Fatal(err)
		}
		plant(t, d.here, row.here)
		want := tree(t, d.here)
		_, err := d.apply(t, nil)
		if clash, ok := errors.AsType[*ClashError](err); row.clash == "" && err != nil || row.clash != "" && (!ok || !strings.Contains(clash.Error(), row.clash)) {
			t.Errorf("%s: it ends with %v; want %q", row.name, err, row.clash)
		}
		if row.clash == "" {
			expected := t.TempDir()
			if err := os.Chmod(expected, 0o755); err != nil {
				t.Fatal(err)
			}
			plant(t, expected, row.want)
			want = tree(t, expected)
		}
		if diff := cmp.Diff(want, tree(t, d.here)); diff != "" {
			t.Errorf("%s: here (-want +got):\n%s", row.name, diff)
		}
	}

	pulled := filepath.Join(disk, "pulled")
	archive := pack(t, regular("a", "1"), regular("A", "2"))
	if _, err := unpack(bytes.NewReader(archive), pulled, Options{}); err == nil || !strings.Contains(err.Error(), "A and a are one name") {
		t.Errorf("unpack() = %v; want both names", err)
	}
	if _, err := os.Lstat(pulled); err == nil {
		t.Error("a pull that was refused has left its directory")
	}
}
