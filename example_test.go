package sandboxbash_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/sandboxbash/sandboxbash"
)

// README.md shows the body of this function; TestReadme in docs compares.
func Example() {
	ctx := context.Background()
	// readme:begin
	engine, err := sandboxbash.Open(ctx, sandboxbash.Options{})
	check(err)
	session, err := engine.Start(ctx, sandboxbash.Spec{Image: sandboxbash.HostImage})
	check(err)
	res, err := session.Run(ctx, sandboxbash.Command{Script: "echo started; sleep 60", Timeout: time.Second})
	check(err)                                        // nothing ran, or its end is not known
	fmt.Println(res.Reason, res.Output.Stdout.Text()) // timed-out started
	// readme:end
	check(errors.Join(session.Stop(ctx), engine.Close(ctx)))
}

func check(err error) {
	if err != nil {
		log.New(os.Stderr, "", 0).Fatal(err)
	}
}
