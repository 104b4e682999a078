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
	"strings"
)

// stampFile is the name of the file that remembers which snapshot this machine's programs
// make, so that not every start must find out. It is a cache and may be removed.
const stampFile = "host-snapshot"

// stampPaths returns paths whose times change when packages are installed, removed or
// updated.
func stampPaths(tools ...string) []string {
	paths := []string{"/var/lib/dpkg/status", "/var/lib/dpkg/info", "/etc/ssl/certs", "/usr/share/zoneinfo", "/usr/lib/locale", "/usr/share/terminfo"}
	paths = append(paths, defaultLibDirs(runtime.GOARCH)...)
	paths = append(paths, slices.Sorted(maps.Values(findPrograms()))...)
	for _, name := range tools {
		programs, _ := hostTools[name].programsOf()
		for _, path := range slices.Sorted(maps.Values(programs)) {
			paths = append(paths, path)
			if target, err := filepath.EvalSymlinks(path); err == nil && hostTools[name].own != nil {
				paths = append(paths, hostTools[name].own(target)...)
			}
		}
	}
	return paths
}

// stamp is a digest of the times and sizes of stampPaths.
func stamp(tools ...string) string {
	h := sha256.New()
	fmt.Fprintln(h, snapshotVersion, runtime.GOARCH)
	for _, path := range stampPaths(tools...) {
		if info, err := os.Stat(path); err == nil {
			fmt.Fprintf(h, "%q %d %d\n", path, info.ModTime().UnixNano(), info.Size())
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// stampName is the name of the file for a snapshot with tools.
func stampName(tools []string) string {
	return strings.Join(append([]string{stampFile}, tools...), "+")
}

// remembered returns the hash of the snapshot that was made of programs with this stamp,
// or "".
func (r *Resolver) remembered(stamp string, tools ...string) string {
	if r.cache == "" {
		return ""
	}
	b, err := os.ReadFile(filepath.Join(r.cache, stampName(tools)))
	if err != nil || len(b) != 2*len(stamp) || string(b[:len(stamp)]) != stamp {
		return ""
	}
	return string(b[len(stamp):])
}

// remember keeps a hash for the next process. It ignores errors: the next process then
// finds out again.
func (r *Resolver) remember(stamp, hash string, tools ...string) {
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
	if closeErr := f.Close(); err != nil || closeErr != nil || os.Rename(f.Name(), filepath.Join(r.cache, stampName(tools))) != nil {
		_ = os.Remove(f.Name())
	}
}
