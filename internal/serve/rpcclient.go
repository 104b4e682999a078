package serve

import (
	"context"
	"errors"

	"github.com/sandboxbash/sandboxbash/agent"
)

// clientTerminal uses terminals of the client, by the methods of the Agent Client
// Protocol.
type clientTerminal struct{ out *outgoing }

var _ agent.ClientTerminal = clientTerminal{}

type terminalID struct {
	ID string `json:"terminalId"`
}

// maxTerminalID bounds the ids that a client may give to terminals.
const maxTerminalID = 256 // bytes

func (c clientTerminal) Create(ctx context.Context, t agent.CreateTerminal) (string, error) {
	var made terminalID
	if err := c.out.ask(ctx, "terminal/create", t, &made); err != nil {
		return "", err
	}
	if made.ID == "" || len(made.ID) > maxTerminalID {
		return "", errors.New("the client's answer to terminal/create has no usable terminalId")
	}
	return made.ID, nil
}

func (c clientTerminal) Kill(ctx context.Context, id string) error {
	return c.out.ask(ctx, "terminal/kill", terminalID{id}, nil)
}

func (c clientTerminal) Release(ctx context.Context, id string) error {
	return c.out.ask(ctx, "terminal/release", terminalID{id}, nil)
}

func (c clientTerminal) Output(ctx context.Context, id string) (shown agent.TerminalOutput, err error) {
	err = c.out.ask(ctx, "terminal/output", terminalID{id}, &shown)
	return shown, err
}

func (c clientTerminal) WaitForExit(ctx context.Context, id string) (exit agent.TerminalExit, err error) {
	err = c.out.ask(ctx, "terminal/wait_for_exit", terminalID{id}, &exit)
	return exit, err
}
