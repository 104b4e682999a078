package docs_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/sandboxbash/sandboxbash/engine/docker"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// README.md shows what stands between the marks; TestReadme compares.
// readme:begin

func work(ctx context.Context) error {
	client, err := docker.Connect(ctx, docker.Options{Getenv: os.Getenv})
	if err != nil {
		return err
	}
	defer client.Close()
	resolver, err := images.New(client, images.Options{})
	if err != nil {
		return err
	}
	sandboxes := sandbox.New(client, resolver, sandbox.Options{Ahead: 1})
	defer sandboxes.Close(ctx)

	session, err := sandboxes.Start(ctx, sandbox.Spec{Image: images.HostRef})
	if err != nil {
		return err // and nothing of it is left
	}
	defer session.Stop(ctx)
	res, err := session.Run(ctx, sandbox.Command{Script: "uname -sm; sleep 60", Timeout: time.Second})
	if err != nil {
		return err // nothing ran, or nobody knows its end: *exec.Error says which
	}
	if res.Reason == exec.TimedOut {
		fmt.Printf("killed after %v, having said %q\n", res.Elapsed.Round(time.Second), res.Output.Stdout.Text())
	}
	return nil
}

// readme:end

func Example() {
	if err := work(context.Background()); err != nil {
		log.Fatal(err)
	}
}
