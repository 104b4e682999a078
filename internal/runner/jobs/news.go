//go:build linux

package jobs

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// news waits for changes of files. It uses no processor time while nothing changes.
type news struct {
	paths   []string
	events  uint32
	matters func(name string) bool // nil: every event does
	f       *os.File               // the kernel's notifications; nil if the kernel's limit is reached
	again   []time.Duration        // pauses before the further checks after an event
	buf     []byte
}

const (
	// seldom is the pause between two checks without a notification. It finds changes that
	// the checks of settle have missed.
	seldom = 30 * time.Second
	// often is the pause between two checks if there are no notifications. Their number is
	// limited for each user, and shared with the host's user of the same uid.
	often = time.Second
	// maxName is NAME_MAX of the kernel.
	maxName = 255
)

// settle holds the pauses between an event and the looks after it. The kernel tells
// of a file's closing before it gives back the file's lock, by which one sees that
// a runner is gone.
var settle = []time.Duration{2 * time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond}

// newNews watches files or directories from now on. Events of a
// directory's entries count only for those that matter.
func newNews(matters func(string) bool, events uint32, paths ...string) *news {
	n := &news{paths: paths, events: events, matters: matters, buf: make([]byte, 64<<10)} // many at once
	n.open()
	return n
}

func (n *news) open() {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return
	}
	for _, path := range n.paths {
		if _, err := unix.InotifyAddWatch(fd, path, n.events); err != nil {
			unix.Close(fd)
			return
		}
	}
	n.f = os.NewFile(uintptr(fd), "inotify")
}

// wait returns when something may have changed since the last wait, or with ctx's cause
// when ctx ends.
func (n *news) wait(ctx context.Context) error {
	if n.f == nil {
		select {
		case <-time.After(often):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		n.open() // what happens from here on is notified, and the caller checks now
		return nil
	}
	pause := seldom
	if len(n.again) > 0 {
		pause, n.again = n.again[0], n.again[1:]
	}
	_ = n.f.SetReadDeadline(time.Now().Add(pause))
	f := n.f
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for ctx.Err() == nil {
		got, err := n.f.Read(n.buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return context.Cause(ctx)
		case err != nil:
			n.close()
			return context.Cause(ctx)
		case n.tells(n.buf[:got]):
			n.again = settle
			return nil
		}
	}
	return context.Cause(ctx)
}

// tells reads inotify(7)'s events: a watch, a mask, a cookie and the length of the
// name that follows. It reports whether one of them matters.
func (n *news) tells(b []byte) bool {
	if n.matters == nil {
		return true
	}
	for len(b) >= unix.SizeofInotifyEvent {
		mask, size := binary.NativeEndian.Uint32(b[4:]), binary.NativeEndian.Uint32(b[12:])
		b = b[unix.SizeofInotifyEvent:]
		if size > maxName+1+16 || int(size) > len(b) { // padded
			return true
		}
		name := strings.TrimRight(string(b[:size]), "\x00")
		if mask&unix.IN_Q_OVERFLOW != 0 || n.matters(name) {
			return true
		}
		b = b[size:]
	}
	return false
}

func (n *news) close() {
	if n.f != nil {
		n.f.Close()
		n.f = nil
	}
}
