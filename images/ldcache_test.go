package images

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// What ldCache writes, this machine's own ldconfig reads: every library with its
// path, and nothing else.
func TestLDCacheIsReadable(t *testing.T) {
	t.Parallel()
	ldconfig, err := exec.LookPath("ldconfig")
	if err != nil {
		ldconfig = "/sbin/ldconfig"
	}
	if _, err := os.Stat(ldconfig); err != nil {
		t.Skip("this machine has no ldconfig to compare with")
	}
	libs := map[string]string{"libc.so.6": "/lib/x/libc.so.6", "libm.so.10": "/lib/x/libm.so.10", "libm.so.9": "/usr/lib/libm.so.9", "ld-linux.so.2": "/lib64/ld-linux.so.2"}
	file := filepath.Join(t.TempDir(), "cache")
	if err := os.WriteFile(file, ldCache(runtime.GOARCH, libs), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), ldconfig, "-p", "-C", file).CombinedOutput()
	if err != nil {
		t.Fatalf("ldconfig -p: %v\n%s", err, out)
	}
	found := regexp.MustCompile(`(?m)^\s(\S+) \(.*\) => (\S+)$`).FindAllStringSubmatch(string(out), -1)
	if len(found) != len(libs) {
		t.Errorf("ldconfig found %d libraries; want %d:\n%s", len(found), len(libs), out)
	}
	for _, m := range found {
		if libs[m[1]] != m[2] {
			t.Errorf("ldconfig found %s at %s; want %q", m[1], m[2], libs[m[1]])
		}
	}
	// libm.so.10 stands before libm.so.9, as the linker's search by halves wants.
	if i, j := strings.Index(string(out), "libm.so.10"), strings.Index(string(out), "libm.so.9"); i < 0 || i > j {
		t.Errorf("libraries stand in the wrong order:\n%s", out)
	}
}

func TestCompareLibraries(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		a, b string
		want int // its sign
	}{
		{"liba.so.1", "liba.so.1", 0},
		{"liba.so.2", "liba.so.10", -1},
		{"liba.so.10", "liba.so.2", 1},
		{"liba.so.1", "libb.so.1", -1},
		{"lib1", "liba", 1},
		{"liba", "lib1", -1},
		{"lib", "liba", -1},
		{"liba", "lib", 1},
	} {
		got := compareLibraries(row.a, row.b)
		if (got < 0) != (row.want < 0) || (got > 0) != (row.want > 0) {
			t.Errorf("compareLibraries(%q, %q) = %d; want the sign of %d", row.a, row.b, got, row.want)
		}
	}
}

// The second look at an unchanged machine takes the remembered answer.
func TestRemember(t *testing.T) {
	t.Parallel()
	r := &Resolver{cache: filepath.Join(t.TempDir(), "new")}
	first, hash := stamp(), strings.Repeat("ab", 32)
	if got := r.remembered(first); got != "" {
		t.Errorf("remembered() = %q before anything was", got)
	}
	r.remember(first, hash)
	if got := r.remembered(stamp()); got != hash {
		t.Errorf("remembered() = %q; want %q", got, hash)
	}
	if got := r.remembered(strings.Repeat("0", 64)); got != "" {
		t.Errorf("remembered(another stamp) = %q; want none", got)
	}
}
