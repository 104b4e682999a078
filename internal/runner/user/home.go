//go:build linux

package user

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// gitIdentity makes commits possible for a user without an identity. It is written to the
// user file of git with the lowest precedence, so that every other setting overrides it.
const gitIdentity = "[user]\n\tname = agent\n\temail = agent@sandbox.invalid\n"

// Home creates what programs expect in the user's home, and makes sure that temporary files
// can be created.
func Home() error {
	home := os.Getenv("HOME")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	// The mount may have the mode of the image's directory. If the engine cannot give a
	// tmpfs to the user, it belongs to uid 0 and all users may write to it.
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
