//go:build linux

package proc

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// Mount is a line of proc_pid_mountinfo(5).
type Mount struct {
	wire.Mount
	Super []string // options of the file system, which all its mounts share
}

// Mounts lists the mounts that this process sees, in the order in which they were made.
func Mounts() ([]Mount, error) {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(info)
}

// parseMounts refuses a file with a line that it does not know, because a mount that is left
// out could be the one that matters.
func parseMounts(info []byte) ([]Mount, error) {
	var all []Mount
	for line := range Lines(info) {
		// The number of fields before the hyphen varies. Behind it, the source may be empty.
		// Only a space separates fields: a name may hold all else that Unicode calls a space.
		before, after, _ := strings.Cut(string(line), " - ")
		f, g := strings.Split(before, " "), strings.Split(after, " ")
		if len(f) < 6 || len(g) < 2 || slices.Contains(f, "") || g[0] == "" || g[len(g)-1] == "" {
			return nil, fmt.Errorf("unknown line in mountinfo: %q", line)
		}
		all = append(all, Mount{
			Mount: wire.Mount{
				Target: wire.UnescapeMount(f[4]), Type: g[0], Options: strings.Split(f[5], ","),
				Device: f[2], Root: wire.UnescapeMount(f[3]),
			},
			Super: strings.Split(g[len(g)-1], ","),
		})
	}
	return all, nil
}
