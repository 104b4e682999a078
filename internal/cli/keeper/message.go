//go:build unix

package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// errMessage reports what is not a message of this protocol.
var errMessage = errors.New("malformed message")

// send sends a runner with its file.
func send(conn *net.UnixConn, what byte, r runner) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	raw, err := r.File.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Control(func(fd uintptr) {
		_, _, sent = conn.WriteMsgUnix(append([]byte{what}, text...), unix.UnixRights(int(fd)), nil)
	})
	return errors.Join(err, sent)
}

// receive receives a message. If it brings a runner, the file is the caller's.
func receive(conn *net.UnixConn) (what byte, r runner, err error) {
	text, oob := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4))
	n, oobn, flags, _, err := conn.ReadMsgUnix(text, oob) // its files are closed on exec
	if err != nil {
		return 0, r, err
	}
	files, err := filesIn(oob[:oobn])
	if err == nil && (n == 0 || flags&unix.MSG_CTRUNC != 0) {
		err = errMessage
	}
	if err == nil && n > 1 {
		if err = json.Unmarshal(text[1:n], &r); err == nil && len(files) != 1 {
			err = errMessage
		}
	}
	if err != nil || len(files) > 1 {
		for _, f := range files {
			_ = f.Close()
		}
		return 0, runner{}, fmt.Errorf("%w: %w", errMessage, err)
	}
	if len(files) == 1 {
		r.File = files[0]
	}
	return text[0], r, nil
}

// filesIn returns the files that came with a message.
func filesIn(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	all, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range all {
		fds, err := unix.ParseUnixRights(&all[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "runner"))
		}
	}
	return files, nil
}
