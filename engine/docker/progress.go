package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/containerd/errdefs/pkg/errhttp"

	"github.com/sandboxbash/sandboxbash/engine"
)

// maxMessage bounds one message of a pull, load or build; a longer one is an error.
const maxMessage = 4 << 20

// message is one JSON value of the stream that such a call answers with.
type message struct {
	ID             string          `json:"id"`
	Status         string          `json:"status"`
	Stream         string          `json:"stream"`
	Aux            json.RawMessage `json:"aux"`
	Error          string          `json:"error"`
	ProgressDetail struct {
		Current int64 `json:"current"`
		Total   int64 `json:"total"`
	} `json:"progressDetail"`
	ErrorDetail *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"errorDetail"`
}

// failure is the error that a message carries: the call as a whole was answered
// with success long before.
func (m message) failure() error {
	if m.ErrorDetail == nil && m.Error == "" {
		return nil
	}
	err := &apiError{message: m.Error}
	if m.ErrorDetail != nil {
		err.status = m.ErrorDetail.Code
		if err.message == "" {
			err.message = m.ErrorDetail.Message
		}
		if err.status >= 400 { // Docker also puts exit codes here
			err.kind = errhttp.ToNative(err.status)
		}
	}
	if err.message == "" {
		err.message = "the engine reported an error without words"
	}
	return err
}

// follow reads the stream to its end. An error in it is the call's.
func follow(ctx context.Context, r io.Reader, each func(message)) error {
	budget := &budgetReader{r: r}
	dec := json.NewDecoder(budget)
	for {
		budget.left = maxMessage
		var m message
		err := dec.Decode(&m)
		if errors.Is(err, io.EOF) {
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("read the engine's progress: %w", err)
		}
		if err := m.failure(); err != nil {
			return err
		}
		each(m)
	}
}

// budgetReader stops a value that never ends.
type budgetReader struct {
	r    io.Reader
	left int
}

func (b *budgetReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("a message is over %d bytes", maxMessage)
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// reporter turns messages into progress.
func reporter(progress func(engine.Progress)) func(message) {
	return func(m message) {
		if progress == nil {
			return
		}
		p := engine.Progress{ID: m.ID, Status: m.Status, Current: m.ProgressDetail.Current, Total: m.ProgressDetail.Total}
		if p.Status == "" {
			p.Status = strings.TrimRight(m.Stream, "\r\n")
		}
		if p.Status != "" || p.Current != 0 {
			progress(p)
		}
	}
}
