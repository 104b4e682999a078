package holder

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/serve"
)

// Client speaks JSON-RPC to the holder of a terminal. It is for one
// goroutine.
type Client struct {
	dir   string
	ID    string
	conn  *net.UnixConn
	lines *bufio.Reader
	sent  int
	raw   bool // errors of the holder are returned as they came
	// lost says why there is no answer, once a read or write has failed; nil: broken does.
	lost func(ctx context.Context, err error) error
}

// Times that a holder has to answer. What is waited for adds its own.
const (
	AskTime  = 30 * time.Second // also what is typed may have to wait: for a program that does not read
	lookTime = 2 * time.Second  // in a list of many
)

// Dial connects to a terminal's holder. Its close is the caller's.
func Dial(ctx context.Context, dir, id string) (*Client, error) {
	conn, err := Connect(ctx, dir, id)
	if err != nil {
		return nil, err
	}
	c := &Client{dir: dir, ID: id, conn: conn, lines: bufio.NewReader(conn)}
	if err := c.Call(ctx, lookTime, "initialize", map[string]any{"protocol": serve.RPCVersion}, nil); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Call asks and waits for the answer, so long at most.
func (c *Client) Call(ctx context.Context, patience time.Duration, method string, params map[string]any, result any) error {
	return c.call(ctx, patience, method, params, result)
}

// Pass is Call for a request of another client: its parameters, the result and an error are as they came.
func (c *Client) Pass(ctx context.Context, patience time.Duration, method string, params json.RawMessage) (result json.RawMessage, err error) {
	c.raw = true
	defer func() { c.raw = false }()
	err = c.call(ctx, patience, method, params, &result)
	return result, err
}

func (c *Client) call(ctx context.Context, patience time.Duration, method string, params, result any) error {
	c.sent++
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": c.sent, "method": method, "params": params})
	if err != nil {
		return err
	}
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := c.conn.Write(append(line, '\n')); err != nil {
		return c.broken(ctx, patience, err)
	}
	for {
		line, err := c.lines.ReadBytes('\n')
		if err != nil {
			return c.broken(ctx, patience, err)
		}
		var answer struct {
			ID     int             `json:"id"`
			Result json.RawMessage `json:"result"`
			Error  *serve.Error    `json:"error"`
		}
		if err := json.Unmarshal(line, &answer); err != nil {
			return fmt.Errorf("terminal %s: its holder's answer: %w", c.ID, err)
		}
		switch {
		case answer.ID != c.sent: // a notification
			continue
		case answer.Error != nil && c.raw:
			return answer.Error
		case answer.Error != nil:
			return Answered(answer.Error)
		case result == nil:
			return nil
		}
		return json.Unmarshal(answer.Result, result)
	}
}

// broken says why there is no answer, once a read or write has failed.
func (c *Client) broken(ctx context.Context, patience time.Duration, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case c.lost != nil:
		return c.lost(ctx, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &exec.Error{Outcome: exec.Unknown, Cause: CauseNoAnswer, Err: fmt.Errorf(
			"terminal %s has not answered within %v: its program does not read what is typed, or its holder hangs", c.ID, patience)}
	}
	again, err := Connect(ctx, c.dir, c.ID) // which tells one that has died from one that has ended
	if err != nil {
		return err
	}
	return errors.Join(&exec.Error{Outcome: exec.Unknown, Cause: CauseNoAnswer, Err: fmt.Errorf(
		"terminal %s has turned this call away: %d others use it", c.ID, MaxClients)}, again.Close())
}

// CauseNoAnswer is the cause of an unknown outcome when a holder does not answer.
const CauseNoAnswer exec.Cause = "no-answer"

// Answered is a holder's error as one of this program's own.
func Answered(e *serve.Error) error {
	outcomes := map[serve.Kind]exec.Outcome{
		serve.KindNotStarted: exec.NotStarted, serve.KindUnknownOutcome: exec.Unknown, serve.KindLost: exec.Lost, serve.KindCancelled: exec.NotStarted,
	}
	if outcome, ok := outcomes[e.Data.Kind]; ok {
		cause := exec.Cause(e.Data.Cause)
		if e.Data.Kind == serve.KindCancelled {
			cause = exec.CauseCancelled
		}
		return &exec.Error{Outcome: outcome, Cause: cause, Err: errors.New(e.Message)}
	}
	switch e.Data.Kind { //nolint:exhaustive // the others do not come from terminals
	case serve.KindParams, serve.KindTooLarge:
		return exit.Misuse("", "%s", e.Message)
	case serve.KindUnknownTerminal:
		return fmt.Errorf("%s: %w", e.Message, ErrUnknown)
	}
	return e
}
