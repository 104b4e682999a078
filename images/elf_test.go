package images

import (
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

// elfHeader is the start of an ELF file, as far as readHeader looks.
func elfHeader(class elf.Class, data elf.Data, machine elf.Machine) []byte {
	h := append([]byte(elf.ELFMAG), byte(class), byte(data), 1)
	h = append(h, make([]byte, 20-len(h))...)
	low, high := byte(machine), byte(machine>>8)
	if data == elf.ELFDATA2MSB {
		low, high = high, low
	}
	h[18], h[19] = low, high
	return h
}

func writeAll(t *testing.T, files map[string][]byte) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, data := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestReadHeader(t *testing.T) {
	t.Parallel()
	dir := writeAll(t, map[string][]byte{
		"little": elfHeader(elf.ELFCLASS64, elf.ELFDATA2LSB, elf.EM_X86_64),
		"big":    elfHeader(elf.ELFCLASS32, elf.ELFDATA2MSB, elf.EM_PPC),
		"short":  elfHeader(elf.ELFCLASS64, elf.ELFDATA2LSB, elf.EM_X86_64)[:19],
		"script": []byte("#!/bin/sh\necho not a library\n"),
	})
	for _, tt := range []struct {
		file string
		want object
		err  error
	}{
		{"little", object{machine: elf.EM_X86_64, class: elf.ELFCLASS64}, nil},
		{"big", object{machine: elf.EM_PPC, class: elf.ELFCLASS32}, nil},
		{"short", object{}, errNotELF},
		{"script", object{}, errNotELF},
		{"none", object{}, os.ErrNotExist},
	} {
		got, err := readHeader(filepath.Join(dir, tt.file))
		if got.machine != tt.want.machine || got.class != tt.want.class || !errors.Is(err, tt.err) {
			t.Errorf("readHeader(%s) = %+v, %v; want %+v, %v", tt.file, got, err, tt.want, tt.err)
		}
	}
}

// The linker takes the first library of the program's own machine and class, from the
// program's paths before its own directories.
func TestFindLibrary(t *testing.T) {
	t.Parallel()
	right := elfHeader(elf.ELFCLASS64, elf.ELFDATA2LSB, elf.EM_X86_64)
	dir := writeAll(t, map[string][]byte{
		"a/lib1": elfHeader(elf.ELFCLASS64, elf.ELFDATA2LSB, elf.EM_AARCH64), "a/lib2": right, "a/lib4": []byte("GROUP ( libc.so.6 )"),
		"b/lib1": elfHeader(elf.ELFCLASS32, elf.ELFDATA2LSB, elf.EM_X86_64), "b/lib2": right, "b/lib4": right,
		"c/lib1": right, "c/lib2": right,
	})
	at := func(name string) string { return filepath.Join(dir, name) }
	l := linker{dirs: []string{at("a"), at("b"), at("c")}}
	for _, tt := range []struct {
		name  string
		rpath []string
		want  found
		ok    bool
	}{
		{"lib1", nil, found{path: at("c/lib1"), name: "lib1"}, true},
		{"lib2", nil, found{path: at("a/lib2"), name: "lib2"}, true},
		{"lib2", []string{at("none"), at("c")}, found{path: at("c/lib2"), name: "lib2", direct: true}, true},
		{"lib4", nil, found{path: at("b/lib4"), name: "lib4"}, true},
		{"lib5", nil, found{}, false},
		{"/abs/lib", nil, found{path: "/abs/lib", direct: true}, true},
	} {
		got, ok := l.find(object{machine: elf.EM_X86_64, class: elf.ELFCLASS64, rpath: tt.rpath}, tt.name)
		if got != tt.want || ok != tt.ok {
			t.Errorf("find(%s, rpath %v) = %+v, %v; want %+v, %v", tt.name, tt.rpath, got, ok, tt.want, tt.ok)
		}
	}
}

func TestDefaultDirectories(t *testing.T) {
	t.Parallel()
	for dir, want := range map[string]bool{
		"/lib": true, "/usr/lib": true, "/lib64": true, "/usr/lib64": true, "/lib/x86_64-linux-gnu": true, "/usr/lib/aarch64-linux-gnu": true,
		"/usr/local/lib": false, "/opt/lib": false, "/usr/lib/x": false, "/usr/local/lib/x86_64-linux-gnu": false,
	} {
		if got := isDefault(dir); got != want {
			t.Errorf("isDefault(%s) = %v; want %v", dir, got, want)
		}
	}
	for _, arch := range []string{"amd64", "arm64", "riscv64"} {
		for _, dir := range defaultLibDirs(arch) {
			if !isDefault(dir) {
				t.Errorf("isDefault(%s) = false; it is one for %s", dir, arch)
			}
		}
	}
}

func TestConfDirs(t *testing.T) {
	t.Parallel()
	dir := writeAll(t, map[string][]byte{
		"ld.so.conf":          []byte("# comment\ninclude ld.so.conf.d/*.conf\n/opt/a # of a\nrelative\n\n  /opt/b/../c  \ninclude /nowhere/*.conf\ninclude [\n"),
		"ld.so.conf.d/1.conf": []byte("/opt/one\n"),
		"ld.so.conf.d/2.conf": []byte("/opt/two\n/opt/three\n"),
		"ld.so.conf.d/3.txt":  []byte("/opt/not\n"),
		"circle":              []byte("/opt/circle\ninclude circle\n"),
	})
	if got, want := confDirs(filepath.Join(dir, "ld.so.conf"), 0), []string{"/opt/one", "/opt/two", "/opt/three", "/opt/a", "/opt/c"}; !slices.Equal(got, want) {
		t.Errorf("confDirs() = %v; want %v", got, want)
	}
	if got := confDirs(filepath.Join(dir, "circle"), 0); len(got) == 0 || len(got) > 10 {
		t.Errorf("confDirs() of a file that includes itself = %d directories; want a few", len(got))
	}
	if got := confDirs(filepath.Join(dir, "none"), 0); got != nil {
		t.Errorf("confDirs() of no file = %v; want none", got)
	}
}

// What cannot be loaded brings no libraries; what is damaged is an error.
func TestLibrariesOf(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("a snapshot is of a linux machine")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	dir := writeAll(t, map[string][]byte{"script": []byte("#!/bin/sh\n"), "empty": nil, "damaged": program[:100]})
	l := newLinker(runtime.GOARCH)
	for _, file := range []string{"script", "empty"} {
		if libs, err := l.libraries(filepath.Join(dir, file)); libs != nil || err != nil {
			t.Errorf("libraries(%s) = %v, %v; want none", file, libs, err)
		}
	}
	for _, file := range []string{"damaged", "none"} {
		if libs, err := l.libraries(filepath.Join(dir, file)); err == nil {
			t.Errorf("libraries(%s) = %v, nil; want an error", file, libs)
		}
	}
	bash, err := l.libraries("/bin/bash")
	if err != nil || !slices.ContainsFunc(bash, func(f found) bool { return f.name == "libc.so.6" && f.direct }) && !slices.ContainsFunc(bash, func(f found) bool { return f.name == "" }) {
		t.Errorf("libraries(/bin/bash) = %+v, %v; want its interpreter or C library", bash, err)
	}
}
