package images

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// linker finds the shared libraries of programs as the dynamic linker would,
// without running anything. It does not read this machine's linker cache, which names
// libraries that a snapshot lacks. A snapshot gets a cache of its own (see ldCache) of
// the linker's default directories alone, and linkers of other C libraries have none: so
// a library must be in one of those directories, and is linked there if it is not.
type linker struct {
	dirs []string // searched after a file's own paths, in order
}

// defaultLibDirs are built into dynamic linkers: of Debian (multiarch), of
// Fedora and others, and of musl.
func defaultLibDirs(arch string) []string {
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[arch]
	dirs := []string{"/lib64", "/usr/lib64", "/lib", "/usr/lib"}
	if triplet != "" {
		dirs = append([]string{"/lib/" + triplet, "/usr/lib/" + triplet}, dirs...)
	}
	return dirs
}

// newLinker returns a linker with the machine's own directories after the
// linker's default ones.
func newLinker(arch string) linker {
	return linker{dirs: append(defaultLibDirs(arch), confDirs("/etc/ld.so.conf", 0)...)}
}

// confDirs reads an ld.so.conf, which may include others.
func confDirs(path string, depth int) []string {
	const maxDepth = 5 // includes within includes; files may include each other
	data, err := os.ReadFile(path)
	if err != nil || depth > maxDepth {
		return nil
	}
	var dirs []string
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 2 && fields[0] == "include":
			pattern := fields[1]
			if !filepath.IsAbs(pattern) {
				pattern = filepath.Join(filepath.Dir(path), pattern)
			}
			files, _ := filepath.Glob(pattern) // a malformed pattern includes nothing, as for the linker
			for _, f := range files {
				dirs = append(dirs, confDirs(f, depth+1)...)
			}
		case len(fields) > 0 && filepath.IsAbs(fields[0]):
			dirs = append(dirs, filepath.Clean(fields[0]))
		}
	}
	return dirs
}

// object is what the linker needs to know of an ELF file.
type object struct {
	interp  string
	needed  []string
	rpath   []string // DT_RPATH or DT_RUNPATH, with $ORIGIN replaced
	machine elf.Machine
	class   elf.Class
}

var errNotELF = errors.New("not an ELF file")

// readObject reads an ELF file; the error is errNotELF for any other.
func readObject(path string) (object, error) {
	f, err := os.Open(path)
	if err != nil {
		return object{}, err
	}
	defer f.Close()
	var magic [4]byte
	if _, err := f.ReadAt(magic[:], 0); err != nil || string(magic[:]) != elf.ELFMAG {
		return object{}, errNotELF
	}
	e, err := elf.NewFile(f)
	if err != nil {
		return object{}, fmt.Errorf("%s: %w", path, err)
	}
	o := object{machine: e.Machine, class: e.Class}
	for _, p := range e.Progs {
		if p.Type == elf.PT_INTERP {
			name := make([]byte, min(p.Filesz, 4096)) // PATH_MAX
			if _, err := p.ReadAt(name, 0); err != nil {
				return object{}, fmt.Errorf("%s: %w", path, err)
			}
			o.interp = strings.TrimRight(string(name), "\x00")
		}
	}
	if e.Type != elf.ET_EXEC && e.Type != elf.ET_DYN {
		return o, nil // an object file: nothing loads it
	}
	return o, o.readDynamic(e, path)
}

func (o *object) readDynamic(e *elf.File, path string) error {
	var err error
	if o.needed, err = e.DynString(elf.DT_NEEDED); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	lists, err := e.DynString(elf.DT_RUNPATH)
	if err == nil && len(lists) == 0 {
		lists, err = e.DynString(elf.DT_RPATH)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	origin := strings.NewReplacer("${ORIGIN}", filepath.Dir(path), "$ORIGIN", filepath.Dir(path))
	for _, list := range lists {
		for dir := range strings.SplitSeq(list, ":") {
			if dir = origin.Replace(dir); filepath.IsAbs(dir) {
				o.rpath = append(o.rpath, filepath.Clean(dir))
			}
		}
	}
	return nil
}

// found is a library that a file needs: where it is, and whether the linker looks there
// by itself, because of its default directories or of the file's own paths.
type found struct {
	path   string
	name   string // DT_NEEDED
	direct bool
}

// libraries returns what the ELF file at path loads: its interpreter and the libraries
// that it names itself. It does not follow those libraries; the caller does. A library
// that this machine lacks is left out: the program does not work here either.
func (l linker) libraries(path string) ([]found, error) {
	o, err := readObject(path)
	if err != nil {
		if errors.Is(err, errNotELF) || errors.Is(err, fs.ErrPermission) {
			return nil, nil
		}
		return nil, err
	}
	var libs []found
	if o.interp != "" {
		libs = append(libs, found{path: o.interp, direct: true})
	}
	for _, name := range o.needed {
		if lib, ok := l.find(o, name); ok {
			libs = append(libs, lib)
		}
	}
	return libs, nil
}

func (l linker) find(o object, name string) (found, bool) {
	if filepath.IsAbs(name) {
		return found{path: name, direct: true}, true
	}
	for i, dir := range append(slices.Clip(o.rpath), l.dirs...) {
		path := filepath.Join(dir, name)
		lib, err := readHeader(path)
		if err != nil || lib.machine != o.machine || lib.class != o.class {
			continue
		}
		return found{path: path, name: name, direct: i < len(o.rpath) || isDefault(dir)}, true
	}
	return found{}, false
}

func isDefault(dir string) bool {
	switch filepath.Base(dir) {
	case "lib", "lib64", "x86_64-linux-gnu", "aarch64-linux-gnu":
		parent := filepath.Dir(strings.TrimSuffix(dir, "-linux-gnu"))
		return parent == "/" || parent == "/usr" || parent == "/lib" || parent == "/usr/lib"
	}
	return false
}

// readHeader reads machine and class alone: the linker skips a library of
// another architecture.
func readHeader(path string) (object, error) {
	f, err := os.Open(path)
	if err != nil {
		return object{}, err
	}
	defer f.Close()
	var h [20]byte // e_ident, e_type, e_machine
	if _, err := f.ReadAt(h[:], 0); err != nil || string(h[:4]) != elf.ELFMAG {
		return object{}, errNotELF
	}
	machine := elf.Machine(uint16(h[18]) | uint16(h[19])<<8)
	if elf.Data(h[5]) == elf.ELFDATA2MSB {
		machine = elf.Machine(uint16(h[19]) | uint16(h[18])<<8)
	}
	return object{machine: machine, class: elf.Class(h[4])}, nil
}
