package core

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// VersionJSON describes this build.
type VersionJSON struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from files that are not committed
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Protocol int    `json:"protocol"` // between host and runner

	Runners map[string]string `json:"runners"` // SHA-256 of those that are embedded, by architecture
}

// Build describes this program, whose version is "" in a build that is not a release.
func Build(version string) VersionJSON {
	v := VersionJSON{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Protocol: wire.Version}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = cmp.Or(v.Version, info.Main.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
