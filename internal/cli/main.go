// Package cli is the command line of sandboxbash: the tree of its commands, its help
// and its signals. The packages below it hold what the commands share.
package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
)

// lastWords is how long cleaning up may still take after a second signal.
const lastWords = 2 * time.Second

// Main is the whole program; it returns the exit status. The version is "" in a build that
// is not a release. The first signal cancels what it does, which then
// cleans up after itself; a second one ends it at once, or as soon as the
// cleaning up is done.
func Main(version string, args, environ []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	// A reader that has gone is an error of the write, for every descriptor.
	signal.Ignore(syscall.SIGPIPE)

	a := &program{core.New(version, environ, stdin, stdout, stderr)}
	defer a.Streams.RestoreTerminal() // a second signal does not wait for what restores it otherwise
	done := make(chan int, 1)
	go func() { done <- a.execute(ctx, args) }()
	for received := 0; ; received++ {
		select {
		case status := <-done:
			return status
		case sig := <-signals:
			switch sig {
			case os.Interrupt:
				cancel(exit.InterruptError{})
			case syscall.SIGHUP:
				cancel(exit.ErrHangup)
			default:
				cancel(exit.ErrInterrupted)
			}
		}
		if received == 0 {
			continue
		}
		select {
		case <-done:
		case <-time.After(lastWords):
		}
		return exit.Cancelled
	}
}

// Run runs a command line and returns the exit status: Main without its signals.
func Run(ctx context.Context, version string, args, environ []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return RunWith(ctx, core.New(version, environ, stdin, stdout, stderr), args)
}

// RunWith is Run with the parts of a call, which are used for this call alone.
func RunWith(ctx context.Context, parts *core.Parts, args []string) int {
	return (&program{parts}).execute(ctx, args)
}
