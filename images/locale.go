package images

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
)

// localeArchivePath is where glibc looks before it tries a file for each of the
// twelve categories of a locale.
const localeArchivePath = "/usr/lib/locale/locale-archive"

// localeArchive packs the C.UTF-8 locale of the tree into one file, with this
// machine's own localedef: a program that starts opens one file instead of twelve. It
// returns nil if localedef fails; the single files do as well.
func localeArchive(ctx context.Context, t *tree) []byte {
	source := "/usr/lib/locale/C.utf8"
	if _, ok := t.entries[source]; !ok {
		return nil
	}
	dir, err := os.MkdirTemp("", "locale")
	if err != nil {
		return nil
	}
	defer os.RemoveAll(dir)
	archive := filepath.Join(dir, localeArchivePath)
	if err := os.MkdirAll(filepath.Dir(archive), 0o700); err != nil {
		return nil
	}
	cmd := exec.CommandContext(ctx, "localedef", "--prefix="+dir, "--add-to-archive", source)
	if err := cmd.Run(); err != nil {
		return nil
	}
	b, err := os.ReadFile(archive)
	if err != nil {
		return nil
	}
	return b
}
