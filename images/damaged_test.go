package images

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// An elfFile is what the linker reads of a program: its interpreter and its dynamic
// section.
type elfFile struct {
	kind    elf.Type
	interp  string
	dynamic []dynamicEntry
}

type dynamicEntry struct {
	tag   elf.DynTag
	value string
}

// bytes encodes the file for amd64: the header, a program header for the interpreter, the
// texts, the dynamic section, and the headers of three sections.
func (f elfFile) bytes(t *testing.T) []byte {
	t.Helper()
	const header, program, section = 64, 56, 64 // bytes
	interpAt := header + program
	text := []byte("\x00")
	var dynamic []elf.Dyn64
	for _, d := range f.dynamic {
		dynamic = append(dynamic, elf.Dyn64{Tag: int64(d.tag), Val: uint64(len(text))})
		text = append(append(text, d.value...), 0)
	}
	dynamic = append(dynamic, elf.Dyn64{})
	textAt := interpAt + len(f.interp) + 1
	dynamicAt := textAt + len(text)
	sectionsAt := dynamicAt + 16*len(dynamic)
	h := elf.Header64{
		Type: uint16(f.kind), Machine: uint16(elf.EM_X86_64), Version: 1, Phoff: header, Shoff: uint64(sectionsAt),
		Ehsize: header, Phentsize: program, Phnum: 1, Shentsize: section, Shnum: 3, Shstrndx: 1,
	}
	copy(h.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	p := elf.Prog64{Type: uint32(elf.PT_INTERP), Off: uint64(interpAt), Filesz: uint64(len(f.interp) + 1)}
	if f.interp == "" {
		p.Type = uint32(elf.PT_NULL)
	}
	sections := []elf.Section64{
		{},
		{Type: uint32(elf.SHT_STRTAB), Off: uint64(textAt), Size: uint64(len(text))},
		{Type: uint32(elf.SHT_DYNAMIC), Off: uint64(dynamicAt), Size: uint64(16 * len(dynamic)), Link: 1, Entsize: 16},
	}
	var out bytes.Buffer
	for _, part := range []any{h, p, []byte(f.interp + "\x00"), text, dynamic, sections} {
		if err := binary.Write(&out, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// program is an ELF file with everything that the linker reads.
var program = elfFile{kind: elf.ET_DYN, interp: "/lib64/ld-linux-x86-64.so.2", dynamic: []dynamicEntry{
	{elf.DT_NEEDED, "liba.so.1"}, {elf.DT_NEEDED, "libb.so.2"}, {elf.DT_RUNPATH, "$ORIGIN/../lib:/opt/lib/"},
}}

func TestReadObject(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i, tt := range []struct {
		name string
		file elfFile
		want object
	}{
		{"a program", program, object{interp: "/lib64/ld-linux-x86-64.so.2", needed: []string{"liba.so.1", "libb.so.2"}, rpath: []string{filepath.Dir(dir) + "/lib", "/opt/lib"}}},
		{"a library", elfFile{kind: elf.ET_DYN, dynamic: []dynamicEntry{{elf.DT_NEEDED, "libc.so.6"}}}, object{needed: []string{"libc.so.6"}}},
		{"a static program", elfFile{kind: elf.ET_EXEC}, object{}},
		{"an object file", elfFile{kind: elf.ET_REL, dynamic: program.dynamic}, object{}},
		{"the older search path", elfFile{kind: elf.ET_DYN, dynamic: []dynamicEntry{{elf.DT_RPATH, "/a:/b"}}}, object{rpath: []string{"/a", "/b"}}},
		{"both: the newer one wins", elfFile{kind: elf.ET_DYN, dynamic: []dynamicEntry{{elf.DT_RPATH, "/a"}, {elf.DT_RUNPATH, "/b"}}}, object{rpath: []string{"/b"}}},
		{"paths that are not absolute", elfFile{kind: elf.ET_DYN, dynamic: []dynamicEntry{{elf.DT_RUNPATH, "lib::.:/c:${ORIGIN}:$ORIGIN2"}}}, object{rpath: []string{"/c", dir, dir + "2"}}},
	} {
		path := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(path, tt.file.bytes(t), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readObject(path)
		if err != nil || got.interp != tt.want.interp || !slices.Equal(got.needed, tt.want.needed) || !slices.Equal(got.rpath, tt.want.rpath) {
			t.Errorf("%s: readObject() = %+v, %v; want %+v", tt.name, got, err, tt.want)
		}
		if got.machine != elf.EM_X86_64 || got.class != elf.ELFCLASS64 {
			t.Errorf("%s: readObject() = %v, %v; want x86_64 of 64 bits", tt.name, got.machine, got.class)
		}
	}
}

// A file that was cut off or changed anywhere is an error, or no ELF file, or one that
// names other things: never a panic, and never a name that its bytes do not hold.
func TestReadDamagedObject(t *testing.T) {
	t.Parallel()
	whole := program.bytes(t)
	path := filepath.Join(t.TempDir(), "program")
	read := func(data []byte) (object, error) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return readObject(path)
	}
	for n := range whole {
		switch o, err := read(whole[:n]); {
		case n < 4 && !errors.Is(err, errNotELF):
			t.Errorf("readObject() of the first %d bytes = %+v, %v; want %v", n, o, err, errNotELF)
		case err == nil:
			t.Errorf("readObject() of %d of %d bytes = %+v, nil; want an error", n, len(whole), o)
		}
	}
	refused := 0
	for at := range whole {
		for _, b := range []byte{0x00, 0x7f, 0xff} {
			bad := slices.Clone(whole)
			bad[at] = b
			o, err := read(bad)
			if err != nil {
				refused++
			}
			for _, name := range append(o.needed, o.interp) {
				if !bytes.Contains(bad, []byte(name)) {
					t.Errorf("readObject() with byte %d as %#x names %q, which is not in the file", at, b, name)
				}
			}
		}
	}
	if refused == 0 {
		t.Error("readObject() refuses no change of any byte")
	}
}

// A damaged library on the search path does not hide the whole one behind it.
func TestFindSkipsDamagedLibraries(t *testing.T) {
	t.Parallel()
	whole := program.bytes(t)
	other := slices.Clone(whole)
	other[18] = byte(elf.EM_AARCH64)
	dir := writeAll(t, map[string][]byte{"a/lib": nil, "b/lib": whole[:10], "c/lib": other, "d/lib": whole, "a/dir/x": nil})
	var dirs []string
	for _, name := range []string{"none", "a", "b", "c", "d"} {
		dirs = append(dirs, filepath.Join(dir, name))
	}
	l := linker{dirs: dirs}
	o := object{machine: elf.EM_X86_64, class: elf.ELFCLASS64}
	if got, ok := l.find(o, "lib"); !ok || got.path != filepath.Join(dir, "d/lib") {
		t.Errorf("find(lib) = %+v, %v; want the one in d", got, ok)
	}
	if got, ok := l.find(o, "dir"); ok {
		t.Errorf("find(dir) = %+v; want nothing: it is a directory", got)
	}
}

// entryOf reads one entry of a linker's cache as glibc does, and fails if it lies outside.
func entryOf(t *testing.T, cache []byte, i int) (name, path string) {
	t.Helper()
	text := func(at uint32) string {
		if int(at) >= len(cache) {
			t.Fatalf("entry %d points to byte %d of %d", i, at, len(cache))
		}
		s, _, ok := strings.Cut(string(cache[at:]), "\x00")
		if !ok {
			t.Fatalf("entry %d has a text without an end", i)
		}
		return s
	}
	e := cache[ldCacheHeader+ldCacheEntry*i:]
	return text(binary.LittleEndian.Uint32(e[4:])), text(binary.LittleEndian.Uint32(e[8:]))
}

// A cache holds what it was made of, in the order in which a linker searches it: each name
// can be found by halves.
func TestLDCacheEntries(t *testing.T) {
	t.Parallel()
	libs := map[string]string{}
	for i := range 120 {
		libs[fmt.Sprintf("lib%c.so.%d", 'a'+i%5, i)] = fmt.Sprintf("/usr/lib/%d", i)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		for _, all := range []map[string]string{nil, {"libc.so.6": "/lib/libc.so.6"}, libs} {
			cache := ldCache(arch, all)
			n := int(binary.LittleEndian.Uint32(cache[20:]))
			if !bytes.HasPrefix(cache, []byte(ldCacheMagic)) || n != len(all) || len(cache) != ldCacheHeader+n*ldCacheEntry+int(binary.LittleEndian.Uint32(cache[24:])) {
				t.Fatalf("the cache of %d libraries for %s has %d entries in %d bytes", len(all), arch, n, len(cache))
			}
			got := map[string]string{}
			for i := range n {
				name, path := entryOf(t, cache, i)
				got[name] = path
			}
			if !maps.Equal(got, all) {
				t.Errorf("the cache for %s holds %v; want %v", arch, got, all)
			}
			for name := range all {
				low, high := 0, n-1
				for low <= high { // as search_cache in elf/dl-cache.c
					middle := (low + high) / 2
					at, _ := entryOf(t, cache, middle)
					c := compareLibraries(name, at)
					if c == 0 {
						low = -1
						break
					}
					if c < 0 {
						low = middle + 1
					} else {
						high = middle - 1
					}
				}
				if low >= 0 {
					t.Errorf("a linker does not find %s in the cache for %s", name, arch)
				}
			}
		}
	}
}

// The order is total whatever the names are: the digits of a name may be many.
func TestCompareLibrariesIsAnOrder(t *testing.T) {
	t.Parallel()
	names := []string{"", "a", "a.so", "liba.so.1", "liba.so.01", "liba.so.9", "liba.so.10", "liba.so.1.2", "liba.so.1.10", "liba-2.so", "liba2.so", "lib10.so", "lib9.so", "lib\xff.so", "liba.so." + strings.Repeat("9", 30), "liba.so.1" + strings.Repeat("0", 30)}
	sign := func(n int) int { return min(max(n, -1), 1) }
	for _, a := range names {
		for _, b := range names {
			if sign(compareLibraries(a, b)) != -sign(compareLibraries(b, a)) {
				t.Errorf("compareLibraries(%q, %q) = %d, and %d the other way", a, b, compareLibraries(a, b), compareLibraries(b, a))
			}
			for _, c := range names {
				if compareLibraries(a, b) < 0 && compareLibraries(b, c) < 0 && compareLibraries(a, c) >= 0 {
					t.Errorf("compareLibraries: %q < %q < %q, but not the first and the last", a, b, c)
				}
			}
		}
	}
}

// Only the whole note of this very stamp is believed.
func TestRememberedIsWhole(t *testing.T) {
	t.Parallel()
	stampOf, hash := strings.Repeat("a", 64), strings.Repeat("b", 64)
	for content, want := range map[string]string{
		stampOf + hash: hash, stampOf + hash + "\n": "", stampOf + hash[:63]: "", stampOf: "", "": "", hash + stampOf: "", strings.Repeat("\x00", 128): "",
	} {
		r := &Resolver{cache: cacheWith(t, content)}
		if got := r.remembered(stampOf); got != want {
			t.Errorf("remembered() of %.20q… (%d bytes) = %q; want %q", content, len(content), got, want)
		}
	}
	r := &Resolver{cache: filepath.Join(t.TempDir(), "file")}
	if err := os.WriteFile(r.cache, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.remember(stampOf, hash) // nowhere: the directory is a file
	if got := r.remembered(stampOf); got != "" {
		t.Errorf("remembered() = %q without a directory; want none", got)
	}
	if left, _ := filepath.Glob(r.cache + "*"); len(left) != 1 {
		t.Errorf("left are %q; want the file alone", left)
	}
}

// cacheWith makes a cache's directory with that note.
func cacheWith(t *testing.T, content string) string {
	t.Helper()
	return writeAll(t, map[string][]byte{stampFile: []byte(content)})
}
