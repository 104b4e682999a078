//go:build linux

package network

import (
	"bytes"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

func certificateOf(text string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: certificate, Bytes: []byte(text)}))
}

func TestTrust(t *testing.T) {
	t.Parallel()
	image := filepath.Join(t.TempDir(), "roots")
	key := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("key")}))
	for _, row := range []struct {
		name, image, in, bundle, err string
	}{
		{"the image's", "# text\n" + certificateOf("image") + key + "secret", certificateOf("own") + certificateOf("host"), certificateOf("image") + certificateOf("own"), ""},
		{"the host's", "", certificateOf("own") + "text\n" + certificateOf("host"), certificateOf("host") + certificateOf("own"), ""},
		{"none but its own", "no certificate", certificateOf("own"), certificateOf("own"), ""},
		{"no authority", "", "", "", "no certificate"},
		{"a key", "", key, "", "no certificate"},
		{"too much", "", strings.Repeat("x", wire.MaxTrust+1), "", "more than"},
	} {
		s := trustStore{filepath.Join(t.TempDir(), "ca"), []string{"/nowhere", image}}
		if err := os.WriteFile(image, []byte(row.image), 0o600); err != nil {
			t.Fatal(err)
		}
		err := s.write(strings.NewReader(row.in))
		if row.err != "" {
			if err == nil || !strings.Contains(err.Error(), row.err) {
				t.Errorf("%s: %v; want %q", row.name, err, row.err)
			}
			if _, err := os.Stat(s.dir); err == nil {
				t.Errorf("%s: there is a directory", row.name)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
		for name, want := range map[string]string{bundleFile: row.bundle, caFile: certificateOf("own")} {
			if got, err := os.ReadFile(filepath.Join(s.dir, name)); err != nil || string(got) != want {
				t.Errorf("%s: %s is %q, %v; want %q", row.name, name, got, err, want)
			}
		}
		if got, err := os.ReadFile(filepath.Join(s.dir, javaFile)); err != nil || !bytes.Equal(got, javaStore([]byte(row.bundle))) {
			t.Errorf("%s: %s is %q, %v; want what the bundle holds", row.name, javaFile, got, err)
		}
	}
}

// Another process of the host has another authority.
func TestTrustAgain(t *testing.T) {
	t.Parallel()
	s := trustStore{dir: filepath.Join(t.TempDir(), "ca")}
	env := []string{"PATH=/bin", "PIP_CERT=", "AWS_CA_BUNDLE=/mine"}
	if got := s.environment(env); !slices.Equal(got, env) {
		t.Errorf("without the files the environment is %q", got)
	}
	for _, own := range []string{"one", "two"} {
		if err := s.write(strings.NewReader(certificateOf(own))); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{caFile, bundleFile} {
			got, err := os.ReadFile(filepath.Join(s.dir, name))
			if err != nil || !bytes.Equal(got, []byte(certificateOf(own))) {
				t.Errorf("%s is %q, %v", name, got, err)
			}
			if info, err := os.Stat(filepath.Join(s.dir, name)); err != nil || info.Mode() != 0o644 {
				t.Errorf("%s: %v, %v", name, info.Mode(), err)
			}
		}
	}
	got := s.environment(env)
	if n := len(env) + len(trustVariables) - 2; len(got) != n || !slices.Equal(got[:3], env) || !slices.Contains(got, "SSL_CERT_FILE="+filepath.Join(s.dir, bundleFile)) ||
		!slices.Contains(got, "JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore="+filepath.Join(s.dir, javaFile)) {
		t.Errorf("the environment is %q; want %d variables, the caller's unchanged", got, n)
	}
}

// What a command may have put in the way is not followed.
func TestTrustRefusesTraps(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	if err := os.Mkdir(victim, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(victim, link); err != nil {
		t.Fatal(err)
	}
	if err := (trustStore{dir: link}).write(strings.NewReader(certificateOf("own"))); err == nil {
		t.Error("a link is taken for the directory")
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := (trustStore{roots: []string{fifo, dir, "/dev/zero"}}).imageRoots(); got != nil {
		t.Errorf("the image's certificates are %q", got)
	}
}

// What cannot be written is an error, and what was there stays whole.
func TestTrustFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	own := certificateOf("own")
	broken := errors.New("broken")
	for _, row := range []struct {
		name, dir string
		in        io.Reader
		want      string
	}{
		{"a file in the way", file, strings.NewReader(own), "is not a directory"},
		{"no parent", filepath.Join(dir, "none", "ca"), strings.NewReader(own), "no such file"},
		{"a host that goes away", filepath.Join(dir, "ca"), io.MultiReader(strings.NewReader(own), iotest.ErrReader(broken)), "broken"},
	} {
		if err := (trustStore{dir: row.dir}).write(row.in); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v; want %q", row.name, err, row.want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "ca")); err == nil {
		t.Error("there is a directory after half of a certificate")
	}
	s := trustStore{dir: filepath.Join(dir, "old")}
	if err := s.write(strings.NewReader(own)); err != nil {
		t.Fatal(err)
	}
	// A directory where the next file is prepared: the old one stays.
	if err := os.MkdirAll(filepath.Join(s.dir, bundleFile+".new", "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.write(strings.NewReader(certificateOf("two"))); err == nil {
		t.Error("write with a directory in the way = nil; want an error")
	}
	for _, name := range []string{bundleFile, caFile} {
		if got, err := os.ReadFile(filepath.Join(s.dir, name)); err != nil || string(got) != own {
			t.Errorf("%s is %q, %v; want the old one", name, got, err)
		}
	}
}

// A link that waits for the next file is not written through, and no umask closes the files to commands.
func TestTrustReplaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := trustStore{dir: filepath.Join(dir, "ca")}
	victim := filepath.Join(dir, "victim")
	if err := errors.Join(os.Mkdir(s.dir, 0o700), os.WriteFile(victim, []byte("mine"), 0o600), os.Symlink(victim, filepath.Join(s.dir, caFile+".new"))); err != nil {
		t.Fatal(err)
	}
	if err := s.write(strings.NewReader(certificateOf("own"))); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(victim); err != nil || string(got) != "mine" {
		t.Errorf("a link has led to %q, %v", got, err)
	}
	if info, err := os.Stat(s.dir); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the directory has %v, %v; want what commands can read", info.Mode(), err)
	}
	left, err := os.ReadDir(s.dir)
	if err != nil || len(left) != 5 {
		t.Errorf("the directory holds %v, %v; want five files", left, err)
	}
	bundle := filepath.Join(s.dir, bundleFile)
	for name, want := range map[string]string{wgetFile: "ca_certificate = " + bundle + "\n", aptFile: "Acquire::https::CAInfo \"" + bundle + "\";\n"} {
		if got, err := os.ReadFile(filepath.Join(s.dir, name)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v; want %q", name, got, err, want)
		}
	}
	for _, kv := range s.environment(nil) {
		name, file, _ := strings.Cut(kv, "=")
		file = strings.TrimPrefix(file, "-Djavax.net.ssl.trustStore=") // Java's is an option
		if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s names %s: %v, %v", name, file, info, err)
		}
	}
}

// The image's first file with a certificate counts; one that is too large is passed over.
func TestImageRoots(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	large := write("large", certificateOf("large")+strings.Repeat("\n", wire.MaxTrust))
	empty, one, two := write("empty", ""), write("one", certificateOf("one")), write("two", certificateOf("two"))
	for _, row := range []struct {
		roots []string
		want  string
	}{
		{[]string{one, two}, certificateOf("one")},
		{[]string{large, empty, two, one}, certificateOf("two")},
		{[]string{large, empty}, ""},
		{nil, ""},
	} {
		if got := (trustStore{roots: row.roots}).imageRoots(); string(got) != row.want {
			t.Errorf("imageRoots(%q) = %q; want %q", row.roots, got, row.want)
		}
	}
	if os.Getuid() != 0 {
		return // then no file can belong to another user
	}
	if err := os.Chown(one, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	if got := (trustStore{roots: []string{one}}).imageRoots(); got != nil {
		t.Errorf("a command's own file is trusted: %q", got)
	}
}
