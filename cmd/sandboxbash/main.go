// Command sandboxbash runs shell commands in hardened, long-lived containers.
//
// This package alone knows the configuration, the flags, the environment, the
// signals and which engine there is; everything else is in the packages that it
// wires together.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// errInterrupted is the cause of a context that a signal has ended.
var errInterrupted = errors.New("interrupted")

// lastWords is how long cleaning up may still take after a second signal.
const lastWords = 2 * time.Second

// run is the whole program. The first signal cancels what it does, which then
// cleans up after itself; a second one ends it at once, or as soon as the
// cleaning up is done.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	// A reader that has gone is an error of the write, for every descriptor.
	signal.Ignore(syscall.SIGPIPE)

	a := newApp(os.Environ(), stdin, stdout, stderr)
	defer a.restoreTerminal() // a second signal does not wait for whoever would
	done := make(chan int, 1)
	go func() { done <- a.execute(ctx, args) }()
	for received := 0; ; received++ {
		select {
		case status := <-done:
			return status
		case <-signals:
			cancel(errInterrupted)
		}
		if received == 0 {
			continue
		}
		select {
		case <-done:
		case <-time.After(lastWords):
		}
		return statusCancelled
	}
}
