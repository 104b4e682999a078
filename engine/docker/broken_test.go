package docker

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/sandboxbash/sandboxbash/engine"
)

// queries are the calls whose answers are one document, with an answer of an engine.
func queries(t *testing.T, c *Client) map[string]struct {
	good string
	call func() error
} {
	t.Helper()
	type query = struct {
		good string
		call func() error
	}
	ctx := t.Context()
	return map[string]query{
		"Info":            {`{"Architecture":"x86_64","OSType":"linux"}`, func() error { _, err := c.Info(ctx); return err }},
		"Image":           {`{"Id":"sha256:1","Os":"linux","Architecture":"amd64"}`, func() error { _, err := c.Image(ctx, "x"); return err }},
		"Images":          {`[]`, func() error { _, err := c.Images(ctx); return err }},
		"Container":       {`{"Id":"x","Name":"/n","State":{"Status":"running"}}`, func() error { _, err := c.Container(ctx, "x"); return err }},
		"Containers":      {`[]`, func() error { _, err := c.Containers(ctx, nil); return err }},
		"Volume":          {`{"Name":"x"}`, func() error { _, err := c.Volume(ctx, "x"); return err }},
		"Volumes":         {`{"Volumes":[]}`, func() error { _, err := c.Volumes(ctx, nil); return err }},
		"ContainerUsage":  {`{"pids_stats":{"current":1}}`, func() error { _, err := c.ContainerUsage(ctx, "x"); return err }},
		"inspectExec":     {`{"ID":"x","Running":true,"Pid":1}`, func() error { _, err := c.inspectExec(ctx, "x"); return err }},
		"CreateContainer": {`{"Id":"x"}`, func() error { _, _, err := c.CreateContainer(ctx, shell()); return err }},
		"CreateVolume":    {`{"Name":"x"}`, func() error { return c.CreateVolume(ctx, Volume{Name: "x"}) }},
		"OpenExec":        {``, func() error { _, err := c.OpenExec(ctx, "x", engine.Exec{Args: []string{"y"}}); return err }},
	}
}

// shell is the least that a container needs.
func shell() Container {
	c := fullShape()
	c.Image = "sha256:1"
	return c
}

// What is not a document of the engine is an error of the call: it is never taken for an
// answer, and never for a refusal that says what there is.
func TestMalformedAnswers(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "{", "nonsense", `"text"`, "[1,", `{"Id":`, "\x00\x01", "{}}"[:1]} {
		c := fakeClient(t, map[string]http.HandlerFunc{"/": answer(200, body), "GET /v1.41/version": answer(200, `{}`)})
		for name, q := range queries(t, c) {
			err := q.call()
			if _, ok := errors.AsType[*engine.Error](err); !ok {
				t.Errorf("%s answered with %q = %v; want an *engine.Error", name, body, err)
			}
			for _, kind := range []error{engine.ErrNotFound, engine.ErrConflict, engine.ErrDenied, engine.ErrInvalid, engine.ErrUnreachable} {
				if errors.Is(err, kind) {
					t.Errorf("%s answered with %q = %v, which is %v; the engine has not said so", name, body, err, kind)
				}
			}
		}
	}
}

// An answer that ends within its document is an error, wherever it ends.
func TestCutAnswers(t *testing.T) {
	t.Parallel()
	var body string
	c := fakeClient(t, map[string]http.HandlerFunc{
		"GET /v1.41/version": answer(200, `{}`),
		"/":                  func(w http.ResponseWriter, r *http.Request) { answer(200, body)(w, r) },
	})
	for name, q := range queries(t, c) {
		if q.good == "" {
			continue
		}
		for n := range q.good {
			body = q.good[:n]
			if err := q.call(); err == nil {
				t.Errorf("%s answered with %q = nil; want an error", name, body)
			}
		}
	}
}

// What an engine says with a status is the same kind of error for every call, whatever its
// words are, and its words are kept.
func TestKindsOfStatuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status int
		body   string
		want   error
		words  string
	}{
		{400, `{"message":"bad parameter"}`, engine.ErrInvalid, "bad parameter"},
		{401, `{"message":"no such container"}`, engine.ErrDenied, "no such container"},
		{403, `{"message":"plugin"}`, engine.ErrDenied, "plugin"},
		{404, `{"message":"conflict"}`, engine.ErrNotFound, "conflict"},
		{404, `page not found`, engine.ErrNotFound, "page not found"},
		{404, ``, engine.ErrNotFound, ""},
		{409, `{"message":"not found"}`, engine.ErrConflict, "not found"},
		{500, `{"message":"No such container: x"}`, nil, "No such container"},
		{500, `{"message":"unauthorized"}`, nil, "unauthorized"},
		{502, `<html>`, nil, ""},
		{503, `{"message":"not found"}`, nil, "not found"},
	} {
		c := fakeClient(t, map[string]http.HandlerFunc{"/": func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(tt.body, "{") {
				answer(tt.status, tt.body)(w, r)
				return
			}
			http.Error(w, tt.body, tt.status) // plain text, as of a proxy
		}, "GET /v1.41/version": answer(200, `{}`)})
		calls := map[string]func() error{
			"StartContainer":  func() error { return c.StartContainer(t.Context(), "x") },
			"SignalContainer": func() error { return c.SignalContainer(t.Context(), "x", "KILL") },
			"PauseContainer":  func() error { return c.PauseContainer(t.Context(), "x") },
			"WaitContainer":   func() error { return c.WaitContainer(t.Context(), "x") },
			"RemoveImage":     func() error { return c.RemoveImage(t.Context(), "x") },
			"LimitContainer":  func() error { return c.LimitContainer(t.Context(), "x", engine.Usage{PidsLimit: 1}) },
			"LoadImages":      func() error { _, err := c.LoadImages(t.Context(), strings.NewReader(""), nil); return err },
			"ImportImage": func() error {
				_, err := c.ImportImage(t.Context(), strings.NewReader(""), engine.ImageConfig{Ref: "a:1"})
				return err
			},
			"BuildImage": func() error {
				_, err := c.BuildImage(t.Context(), strings.NewReader(""), engine.Build{}, nil)
				return err
			},
		}
		for name, q := range queries(t, c) {
			if name != "CreateContainer" && name != "CreateVolume" { // they ask other things first
				calls[name] = q.call
			}
		}
		for name, call := range calls {
			err := call()
			e, ok := errors.AsType[*engine.Error](err)
			if !ok || e.Op == "" || !strings.Contains(err.Error(), tt.words) {
				t.Errorf("%s with %d %s = %v; want an *engine.Error with the engine's words", name, tt.status, tt.body, err)
				continue
			}
			if e.Kind != tt.want { //nolint:errorlint // the very kind
				t.Errorf("%s with %d %s = %v of kind %v; want %v", name, tt.status, tt.body, err, e.Kind, tt.want)
			}
		}
	}
}

// An answer of any size up to the bound is read whole, and one byte more is an error that
// comes after the bytes.
func TestBoundedBody(t *testing.T) {
	t.Parallel()
	const bound = 100
	for _, size := range []int{0, 1, bound - 1, bound, bound + 1, 10 * bound} {
		for name, source := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader, "early end": iotest.DataErrReader,
		} {
			text := strings.Repeat("x", size)
			b := &boundedBody{ReadCloser: io.NopCloser(source(strings.NewReader(text))), left: bound}
			got, err := io.ReadAll(b)
			if len(got) != min(size, bound) || size <= bound && err != nil || size > bound && !errors.Is(err, errLongAnswer) {
				t.Errorf("%s: %d bytes within %d: read %d, %v", name, size, bound, len(got), err)
			}
			if n, again := b.Read(make([]byte, 8)); size > bound && (n != 0 || !errors.Is(again, errLongAnswer)) {
				t.Errorf("%s: after the bound: %d, %v; want the error again", name, n, again)
			}
		}
	}
}

// The stream of an exec that is cut in a header's byte is an error, in one that is changed
// too: neither is an end, and nothing but the command's own bytes comes out.
func TestDemuxHeaders(t *testing.T) {
	t.Parallel()
	first, second := frame(1, "first"), frame(1, "second")
	for n := 1; n < headerSize; n++ {
		d := demuxOf(strings.NewReader(first + second[:n]))
		if out, err := io.ReadAll(onlyReader{d}); string(out) != "first" || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut after byte %d of a header: %q, %v; want first and %v", n, out, err, io.ErrUnexpectedEOF)
		}
	}
	for at := range headerSize {
		for _, b := range []byte{0x02, 0x03, 0x04, 0x20, 0x7f, 0x80, 0xff} {
			bad := []byte(second)
			bad[at] = b
			d := demuxOf(strings.NewReader(first + string(bad)))
			out, err := io.ReadAll(onlyReader{d})
			switch {
			case at == 0 && b == frameStderr:
				if string(out) != "first" || d.Stderr() != "second" || err != nil {
					t.Errorf("a frame of standard error: %q, %q, %v", out, d.Stderr(), err)
				}
			case !strings.HasPrefix("firstsecond", string(out)) || err == nil:
				t.Errorf("byte %d of a header as %#x: %q, %v; want an error", at, b, out, err)
			case at > 0 && at < 4 && !errors.Is(err, errFrame):
				t.Errorf("byte %d of a header as %#x: %v; want %v", at, b, err, errFrame)
			}
		}
	}
}

// A frame of the engine's own words that is cut off is not its whole complaint.
func TestDemuxCutComplaint(t *testing.T) {
	t.Parallel()
	whole := frame(3, "no space left")
	for n := headerSize; n < len(whole); n++ {
		if _, err := io.ReadAll(onlyReader{demuxOf(strings.NewReader(whole[:n]))}); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("a complaint cut at %d: %v; want %v", n, err, io.ErrUnexpectedEOF)
		}
	}
	long := frame(3, strings.Repeat("w", 2*maxStderr))
	if _, err := io.ReadAll(onlyReader{demuxOf(strings.NewReader(long))}); err == nil || len(err.Error()) > maxStderr+100 {
		t.Errorf("a long complaint: an error of %d bytes; want at most %d of its words", len(err.Error()), maxStderr)
	}
}

// A pull, load, import or build that the engine reports well is done, and any other end is
// an error: also one without words, and an end without the image that was made.
func TestStreamsOfMessages(t *testing.T) {
	t.Parallel()
	const made, built = `{"status":"sha256:1"}`, `{"aux":{"ID":"sha256:1"}}`
	for _, tt := range []struct {
		name, body   string
		importFails  bool
		buildFails   bool
		pullFails    bool
		kind         error
		wantMessages int // of a pull
	}{
		{name: "nothing", importFails: true, buildFails: true},
		{name: "white space", body: "\r\n \n", importFails: true, buildFails: true},
		{name: "made", body: made, buildFails: true, wantMessages: 1},
		{name: "built", body: built, importFails: true},
		{name: "both, and more", body: `{"stream":"Step 1"}` + built + "\n" + made + `{"status":"done"}`, wantMessages: 3},
		{name: "an ID of nothing", body: `{"aux":{"ID":""}}{"status":"sha"}`, importFails: true, buildFails: true, wantMessages: 1},
		{name: "aux of another form", body: `{"aux":[1]}{"aux":"x"}`, importFails: true, buildFails: true},
		{name: "an error at the end", body: made + built + `{"error":"no space"}`, importFails: true, buildFails: true, pullFails: true, wantMessages: 1},
		{name: "an error without words", body: `{"errorDetail":{}}`, importFails: true, buildFails: true, pullFails: true},
		{name: "a refusal", body: `{"errorDetail":{"code":403,"message":"no"}}`, importFails: true, buildFails: true, pullFails: true, kind: engine.ErrDenied},
		{name: "not found", body: `{"errorDetail":{"code":404,"message":"no"}}`, importFails: true, buildFails: true, pullFails: true, kind: engine.ErrNotFound},
		{name: "cut within a message", body: made + built + `{"status":"do`, importFails: true, buildFails: true, pullFails: true, wantMessages: 1},
		{name: "another text", body: made + "Bad Gateway", importFails: true, buildFails: true, pullFails: true, wantMessages: 1},
		{name: "a list", body: `[` + made + `]`, importFails: true, buildFails: true, pullFails: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := fakeClient(t, map[string]http.HandlerFunc{"POST /v1.41/images/create": answer(200, tt.body), "POST /v1.41/build": answer(200, tt.body), "POST /v1.41/images/load": answer(200, tt.body)})
			messages := 0
			for name, call := range map[string]struct {
				fails bool
				do    func(ctx context.Context) error
			}{
				"PullImage":  {tt.pullFails, func(ctx context.Context) error { return c.PullImage(ctx, "x", func(engine.Progress) { messages++ }) }},
				"LoadImages": {tt.pullFails, func(ctx context.Context) error { _, err := c.LoadImages(ctx, strings.NewReader("x"), nil); return err }},
				"ImportImage": {tt.importFails, func(ctx context.Context) error {
					_, err := c.ImportImage(ctx, strings.NewReader("x"), engine.ImageConfig{Ref: "a:1"})
					return err
				}},
				"BuildImage": {tt.buildFails, func(ctx context.Context) error {
					_, err := c.BuildImage(ctx, strings.NewReader("x"), engine.Build{}, nil)
					return err
				}},
			} {
				err := call.do(t.Context())
				if (err != nil) != call.fails || tt.kind != nil && !errors.Is(err, tt.kind) {
					t.Errorf("%s answered with %q = %v; want failure %v, kind %v", name, tt.body, err, call.fails, tt.kind)
				}
			}
			if messages != tt.wantMessages {
				t.Errorf("PullImage() reports progress %d times; want %d", messages, tt.wantMessages)
			}
		})
	}
}

// Counters are what the kernel counts, without the cache that it gives back by itself.
func TestUsageOfContainers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, body string
		want       engine.Usage
	}{
		{"cgroup v2", `{"pids_stats":{"current":3,"limit":512},"memory_stats":{"usage":1000,"limit":4000,"stats":{"inactive_file":300}}}`, engine.Usage{Pids: 3, PidsLimit: 512, Memory: 700, MemoryLimit: 4000}},
		{"cgroup v1", `{"memory_stats":{"usage":1000,"stats":{"total_inactive_file":400,"inactive_file":300}}}`, engine.Usage{Memory: 600}},
		{"more cache than use", `{"memory_stats":{"usage":100,"stats":{"inactive_file":300}}}`, engine.Usage{}},
		{"no cache", `{"memory_stats":{"usage":100}}`, engine.Usage{Memory: 100}},
		{"a container that has ended", `{}`, engine.Usage{}},
	} {
		c := fakeClient(t, map[string]http.HandlerFunc{"GET /v1.41/containers/x/stats": answer(200, tt.body)})
		if got, err := c.ContainerUsage(t.Context(), "x"); got != tt.want || err != nil {
			t.Errorf("%s: ContainerUsage() = %+v, %v; want %+v", tt.name, got, err, tt.want)
		}
	}
}

// A label is an instruction of a Dockerfile to an engine: it must stay one word.
func TestLabelChanges(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ key, value, want string }{
		{"a", "b", `LABEL "a"="b"`},
		{"a b", "", `LABEL "a b"=""`},
		{"a", `"; RUN x`, `LABEL "a"="\"; RUN x"`},
		{"a", `\`, `LABEL "a"="\\"`},
		{"a", "$HOME ${X}", `LABEL "a"="\$HOME \${X}"`},
		{`a"="x`, "y", `LABEL "a\"=\"x"="y"`},
		{"", "b", ""},
		{"a", "b\nRUN x", ""},
		{"a\r", "b", ""},
	} {
		got, err := labelChanges("op", map[string]string{tt.key: tt.value})
		if tt.want == "" {
			if !errors.Is(err, engine.ErrInvalid) {
				t.Errorf("labelChanges(%q=%q) = %q, %v; want %v", tt.key, tt.value, got, err, engine.ErrInvalid)
			}
			continue
		}
		if len(got) != 1 || got[0] != tt.want || err != nil {
			t.Errorf("labelChanges(%q=%q) = %q, %v; want %s", tt.key, tt.value, got, err, tt.want)
		}
	}
}
