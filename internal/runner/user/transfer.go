//go:build linux

package user

import (
	"fmt"
	"io"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/transfer"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// A transfer reads and writes what a command of the session could, and no more, because its
// effective user is the session's. Its real and saved user stay uid 0, and it is not
// dumpable. So in profile strict no command can stop, end or trace it, or open its end of the
// stream through /proc. What arrives on the host is what this program wrote.

// actFor makes the user the effective one of this process.
func actFor(uid, gid uint32) error {
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	if err := syscall.Setresgid(0, int(gid), 0); err != nil {
		return fmt.Errorf("setresgid: %w", err)
	}
	if err := syscall.Setresuid(0, int(uid), 0); err != nil {
		return fmt.Errorf("setresuid: %w", err)
	}
	// This comes after the change of users, which resets it to the machine's default.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl PR_SET_DUMPABLE: %w", err)
	}
	return nil
}

// Push unpacks a tar stream below a directory, and answers with its hash.
func Push(args []string, in io.Reader, out io.Writer) error {
	a, err := transferAs(args)
	if err != nil {
		return err
	}
	sum, err := transfer.Unpack(a.Path, in)
	if err != nil {
		return err
	}
	_, err = out.Write(wire.Sum(sum).Append(nil))
	return err
}

// Pull packs a file or a directory into a tar stream. The error is a
// transfer.MissingError if there is nothing at the path.
func Pull(args []string, out io.Writer) error {
	a, err := transferAs(args)
	if err != nil {
		return err
	}
	return transfer.Pack(out, a.Path)
}

// Manifest writes the hashes of a directory's files. The error is a transfer.MissingError if
// there is nothing at the path.
func Manifest(args []string, out io.Writer) error {
	a, err := transferAs(args)
	if err != nil {
		return err
	}
	return transfer.Manifest(out, a.Path, transfer.DefaultLimits)
}

// Pick packs the files of a directory that the names on in select. The error is a
// transfer.MissingError if there is nothing at the path.
func Pick(args []string, in io.Reader, out io.Writer) error {
	a, err := transferAs(args)
	if err != nil {
		return err
	}
	return transfer.Pick(out, a.Path, in)
}

// Update changes the files of a directory that are as the update on in says, and answers with its
// verdicts. The error is a transfer.MissingError if there is nothing at the path.
func Update(args []string, in io.Reader, out io.Writer) error {
	a, err := transferAs(args)
	if err != nil {
		return err
	}
	return transfer.Update(out, a.Path, in)
}

// transferAs reads the arguments, and makes their user the effective one.
func transferAs(args []string) (wire.TransferArgs, error) {
	var a wire.TransferArgs
	err := wire.ParseArgs(args, &a)
	if err == nil {
		err = actFor(a.UID, a.GID)
	}
	return a, err
}
