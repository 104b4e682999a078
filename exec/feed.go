package exec

import (
	"io"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// request returns the request to run the command.
func (c Command) request(seq uint64) wire.Request {
	return wire.Request{
		Seq: seq, Path: c.Path, Shell: c.Shell, Script: []byte(c.Script), Args: c.Args,
		Env: c.Env, Dir: c.Dir, UID: c.UID, GID: c.GID,
		Merged: c.Stderr == nil, Stdin: c.Stdin != nil, Exclusive: c.Exclusive, Job: c.Job.request(c), Watch: c.Watch,
	}
}

// feed sends the command's standard input, never more than wire.StdinWindow bytes ahead of
// what the command reads. The window opens when the command has started. A command that could
// not be started has therefore read nothing, and can be tried again. feed does not report an
// error of the stream, because read does.
func (r *Runner) feed(run *running, stdin io.Reader, stop <-chan struct{}) {
	buf := make([]byte, 64<<10) // bytes; a frame of standard input
	for {
		for run.window.Load() < int64(len(buf)) {
			select {
			case <-run.credit:
			case <-stop:
				return
			}
		}
		n, err := stdin.Read(buf)
		select {
		case <-stop:
			return
		default:
		}
		if n > 0 {
			run.window.Add(-int64(n))
			if r.sendFor(run, wire.TypeStdin, buf[:n]) != nil {
				return
			}
		}
		if err != nil {
			break
		}
	}
	_ = r.sendFor(run, wire.TypeStdinEnd, nil)
}

// sendRequest sends a request in as many frames as it needs.
func (r *Runner) sendRequest(b []byte) error {
	for len(b) > wire.MaxPayload {
		if err := r.send(wire.TypePart, b[:wire.MaxPayload]); err != nil {
			return err
		}
		b = b[wire.MaxPayload:]
	}
	return r.send(wire.TypeRequest, b)
}

// stuckFeed is how long to wait for a feed whose Read has been ended. It may still be stuck
// in a write, if the engine hangs.
const stuckFeed = 250 * time.Millisecond

// unblock ends a Read of stdin that blocks, if stdin has read deadlines, and waits for the
// feed to end, so that the caller can read stdin again. Without deadlines the owner of stdin
// has to end the Read; until then it keeps a goroutine.
func unblock(stdin io.Reader, fed <-chan struct{}) {
	f, ok := stdin.(interface{ SetReadDeadline(time.Time) error })
	if !ok {
		return
	}
	select {
	case <-fed:
		return
	default:
	}
	if f.SetReadDeadline(time.Unix(1, 0)) != nil {
		return
	}
	late := time.NewTimer(stuckFeed)
	defer late.Stop()
	select {
	case <-fed:
		_ = f.SetReadDeadline(time.Time{})
	case <-late.C:
	}
}
