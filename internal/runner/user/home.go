//go:build linux

package user

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// gitIdentity makes commits possible where the image knows no such user. It is
// the lowest of git's user files: anything else overrides it.
const gitIdentity = "[user]\n\tname = agent\n\temail = agent@sandbox.invalid\n"

// Home puts into the user's home what programs expect there, and sees that
// temporary files can be made.
func Home() error {
	home := os.Getenv("HOME")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	// The image's own mode shines through. Where the engine cannot give a tmpfs to
	// the user, it belongs to uid 0 and is open to all.
	if err := os.Chmod(home, 0o700); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	for _, dir := range []string{os.TempDir(), home} {
		probe, err := os.CreateTemp(dir, "")
		if err != nil {
			return err
		}
		probe.Close()
		if err := os.Remove(probe.Name()); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(filepath.Join(home, ".gitconfig"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil // the image's own
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(gitIdentity)
	return errors.Join(err, f.Close())
}
