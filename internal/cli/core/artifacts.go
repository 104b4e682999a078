package core

import (
	"path/filepath"
	"time"

	"github.com/sandboxbash/sandboxbash/sink"
)

// Artifacts are the full outputs that are kept on this machine.
type Artifacts struct {
	env   *Environment
	cfg   *Configuration
	notes *Notes
}

// Dir is where artifacts are kept, "" if there is no place for them.
func (a *Artifacts) Dir() string {
	if dir := a.cfg.Artifacts.Dir; dir != "" {
		return dir
	}
	state := a.env.StateDir()
	if state == "" {
		return ""
	}
	return filepath.Join(state, "sandboxbash", "artifacts")
}

// Store returns where artifacts are kept, nil if there is no place for them. It
// touches no file.
func (a *Artifacts) Store() (*sink.Store, error) {
	dir := a.Dir()
	if dir == "" {
		return nil, nil
	}
	c := a.cfg.Artifacts
	return sink.NewStore(dir, sink.StoreOptions{
		ArtifactBytes: c.Max, SessionBytes: c.SessionMax, TotalBytes: c.TotalMax, Retention: c.Retention,
	})
}

// OutputStore is where commands' outputs are kept, nil if they are not to be.
func (a *Artifacts) OutputStore() (*sink.Store, error) {
	if a.cfg.Artifacts.Mode == keepsNothing {
		return nil, nil
	}
	return a.Store()
}

// Collect removes artifacts that are past their retention, and what takes
// longer. The function that it returns waits for the end of it.
func (a *Artifacts) Collect() (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		store, err := a.Store()
		if err == nil && store != nil {
			_, err = store.GC(time.Now())
		}
		if err != nil {
			a.notes.Add("old artifacts were not removed: " + err.Error())
		}
	}()
	return func() { <-done }
}
