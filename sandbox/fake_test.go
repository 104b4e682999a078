package sandbox

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/engine/enginetest"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// fakeEngine is an engine in memory whose sessions run fake runners.
type fakeEngine struct {
	*enginetest.Engine
	t *testing.T

	// on answers a request that is not a verb of the runner.
	on func(f *fakeRunner, req wire.Request)
	// onKill answers a Kill.
	onKill func(f *fakeRunner, kill wire.Kill)
	// report changes the posture report.
	report func(string) string
	// verb is called with each verb of the runner that is asked for. It may be nil.
	verb func(name string)
	// lease is called with what the verb lease is asked for. It may be nil.
	lease func(words string)
	// archive is what the verb pull answers with, unless pull says otherwise.
	archive []byte
	pull    func(path string) []byte
	// survey is what a directory is found to hold; nil: a file.
	survey  func(id, dir string) string
	onPull  func(f *fakeRunner, path string) // in place of pull
	stopped bool                             // a command has stopped what takes a push
	// jobs answers the verb jobs, whose query is in the runner's stdin.
	jobs func(f *fakeRunner)
	// files answers a verb that transfers files, at the end of its input. It may be nil.
	files func(f *fakeRunner)
}

func newFakeEngine(t *testing.T) *fakeEngine {
	t.Helper()
	d := &fakeEngine{Engine: enginetest.New(), t: t}
	d.Serve = d.serve
	return d
}

// serve plays a runner.
func (d *fakeEngine) serve(h engine.Handle, e engine.Exec, conn net.Conn) {
	if e.User != "0:0" || !slices.Equal(e.Args, []string{"/.sandboxbash/runner", "serve"}) || e.TTY {
		d.t.Errorf("Open(%+v); want the constant runner serve as 0:0", e)
	}
	f := &fakeRunner{engine: d, session: h.ID, conn: conn, in: wire.NewReader(conn), out: make(chan []byte, 100), done: make(chan struct{})}
	go f.write()
	f.serve()
}

// left lists what there is: ids and statuses.
func (d *fakeEngine) left() []string {
	var all []string
	for _, s := range d.Sessions() {
		all = append(all, s.ID+" "+string(s.Status))
	}
	slices.Sort(all)
	return all
}

// fakeImages has one image.
type fakeImages struct {
	mu       sync.Mutex
	resolved int // guarded by mu
	missing  error
	note     string
	pruned   []string
	env      []string // of the image
}

func (i *fakeImages) Resolve(_ context.Context, ref string, _ func(engine.Progress)) (engine.Image, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.resolved++
	if i.missing != nil {
		return engine.Image{}, i.missing
	}
	return engine.Image{ID: "sha256:" + engine.ImageID(strings.Repeat("a", 64)), Refs: []string{ref}, OS: "linux", Arch: "amd64", Env: i.env}, nil
}

func (i *fakeImages) ResolveDefault(ctx context.Context, progress func(engine.Progress)) (engine.Image, string, error) {
	img, err := i.Resolve(ctx, "default", progress)
	return img, i.note, err
}

func (i *fakeImages) Prune(context.Context) ([]string, error) { return i.pruned, nil }

// start starts a session on a fake engine.
func start(t *testing.T, d *fakeEngine, spec Spec) (*Engine, *Session) {
	t.Helper()
	e := New(d, &fakeImages{}, Options{})
	s, err := e.Start(t.Context(), spec)
	if err != nil {
		t.Fatalf("Start() = %v", err)
	}
	d.Took()
	return e, s
}
