package serve

import (
	"context"
	"errors"

	"github.com/sandboxbash/sandboxbash/tool"
)

// clientTerminal asks the client for terminals, by the method names of the Agent
// Client Protocol.
type clientTerminal struct{ out *outgoing }

var _ tool.ClientTerminal = clientTerminal{}

type terminalID struct {
	ID string `json:"terminalId"`
}

// maxTerminalID bounds what a client may call a terminal.
const maxTerminalID = 256 // bytes

func (c clientTerminal) Create(ctx context.Context, t tool.CreateTerminal) (string, error) {
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

func (c clientTerminal) Output(ctx context.Context, id string) (shown tool.TerminalOutput, err error) {
	err = c.out.ask(ctx, "terminal/output", terminalID{id}, &shown)
	return shown, err
}

func (c clientTerminal) WaitForExit(ctx context.Context, id string) (exit tool.TerminalExit, err error) {
	err = c.out.ask(ctx, "terminal/wait_for_exit", terminalID{id}, &exit)
	return exit, err
}
