package images

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
)

// The cache of dynamic linkers, as glibc reads it since 2.32 (elf/cache.c,
// sysdeps/generic/dl-cache.h: struct cache_file_new). This machine's own cache is not
// used, because it names libraries that a snapshot lacks. Without a cache a linker tries
// some twenty paths for each library, which is slow if the storage driver is a process
// that it must ask each time.
const (
	ldCacheMagic      = "glibc-ld.so.cache1.1"
	ldCacheHeader     = 48 // bytes
	ldCacheEntry      = 24 // bytes
	ldCacheLittle     = 2  // cache_file_new_flags_endian_little
	ldCachePath       = "/etc/ld.so.cache"
	ldFlagELFLibc6    = 0x0003
	ldFlagX8664Lib64  = 0x0300
	ldFlagAarch64Lib6 = 0x0a00
)

var libraryName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(lib[^/]*|ld-[^/]*)\.so\.[0-9][^/]*$`)
})

// libraries returns the paths of the shared objects in the linker's default directories,
// by name. On a system with a merged /usr the paths are below /usr, so that the linker
// follows no link.
func (t *tree) libraries(arch string) map[string]string {
	libs := map[string]string{}
	for _, dir := range slices.Backward(defaultLibDirs(arch)) { // the first directory wins
		for path := range t.entries {
			if filepath.Dir(path) == dir && libraryName().MatchString(filepath.Base(path)) {
				libs[filepath.Base(path)] = path
			}
		}
	}
	return libs
}

// ldCache encodes a cache, for linux on amd64 and arm64.
func ldCache(arch string, libs map[string]string) []byte {
	flags := uint32(ldFlagELFLibc6 | ldFlagX8664Lib64)
	if arch == "arm64" {
		flags = ldFlagELFLibc6 | ldFlagAarch64Lib6
	}
	var names []string
	for name := range libs {
		names = append(names, name)
	}
	// Linkers do a binary search, in descending order.
	slices.SortFunc(names, func(a, b string) int { return compareLibraries(b, a) })
	base := ldCacheHeader + ldCacheEntry*len(names)
	var entries, text bytes.Buffer
	put := func(s string) uint32 {
		at := base + text.Len()
		text.WriteString(s)
		text.WriteByte(0)
		return uint32(at)
	}
	for _, name := range names {
		for _, v := range []uint32{flags, put(name), put(libs[name]), 0, 0, 0} { // no OS version, no hwcap
			_ = binary.Write(&entries, binary.LittleEndian, v)
		}
	}
	out := make([]byte, ldCacheHeader, base+text.Len())
	copy(out, ldCacheMagic)
	binary.LittleEndian.PutUint32(out[20:], uint32(len(names)))
	binary.LittleEndian.PutUint32(out[24:], uint32(text.Len()))
	out[28] = ldCacheLittle
	return append(append(out, entries.Bytes()...), text.Bytes()...)
}

// compareLibraries orders names as the linker does in _dl_cache_libcmp: runs of digits
// compare as numbers.
func compareLibraries(a, b string) int {
	digit := func(s string) bool { return len(s) > 0 && s[0] >= '0' && s[0] <= '9' }
	number := func(s string) (n int, rest string) {
		for digit(s) {
			n, s = n*10+int(s[0]-'0'), s[1:]
		}
		return n, s
	}
	first := func(s string) int {
		if s == "" {
			return 0
		}
		return int(s[0])
	}
	for a != "" {
		switch {
		case digit(a) && digit(b):
			var n, m int
			n, a = number(a)
			m, b = number(b)
			if n != m {
				return n - m
			}
		case digit(a):
			return 1
		case digit(b):
			return -1
		case first(a) != first(b):
			return first(a) - first(b)
		default:
			a, b = a[1:], b[1:]
		}
	}
	return first(a) - first(b)
}
