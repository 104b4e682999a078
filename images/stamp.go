package images

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
)

// stampFile is the name of the file that remembers which snapshot this machine's programs
// make, so that not every start must find out. It is a cache and may be removed.
const stampFile = "host-snapshot"

// stampPaths returns paths whose times change when packages are installed, removed or
// updated.
func stampPaths() []string {
	paths := []string{"/var/lib/dpkg/status", "/var/lib/dpkg/info", "/etc/ssl/certs", "/usr/share/zoneinfo", "/usr/lib/locale", "/usr/share/terminfo"}
	paths = append(paths, defaultLibDirs(runtime.GOARCH)...)
	return append(paths, slices.Sorted(maps.Values(findPrograms()))...)
}

// stamp is a digest of the times and sizes of stampPaths.
func stamp() string {
	h := sha256.New()
	fmt.Fprintln(h, snapshotVersion, runtime.GOARCH)
	for _, path := range stampPaths() {
		if info, err := os.Stat(path); err == nil {
			fmt.Fprintf(h, "%q %d %d\n", path, info.ModTime().UnixNano(), info.Size())
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// remembered returns the hash of the snapshot that was made of programs with this stamp,
// or "".
func (r *Resolver) remembered(stamp string) string {
	if r.cache == "" {
		return ""
	}
	b, err := os.ReadFile(filepath.Join(r.cache, stampFile))
	if err != nil || len(b) != 2*len(stamp) || string(b[:len(stamp)]) != stamp {
		return ""
	}
	return string(b[len(stamp):])
}

// remember keeps a hash for the next process. It ignores errors: the next process then
// finds out again.
func (r *Resolver) remember(stamp, hash string) {
	if r.cache == "" {
		return
	}
	if err := os.MkdirAll(r.cache, 0o700); err != nil {
		return
	}
	f, err := os.CreateTemp(r.cache, stampFile)
	if err != nil {
		return
	}
	_, err = f.WriteString(stamp + hash)
	if closeErr := f.Close(); err != nil || closeErr != nil || os.Rename(f.Name(), filepath.Join(r.cache, stampFile)) != nil {
		_ = os.Remove(f.Name())
	}
}
