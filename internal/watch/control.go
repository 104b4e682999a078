package watch

import "context"

// Asker answers what the journals do not say. It changes nothing.
type Asker interface {
	// Changes compares a session's workspace with the directory that was copied.
	Changes(ctx context.Context, session string) (Changes, error)
}

// Changes are what a session has changed in its copy of a directory. The texts are safe to show.
type Changes struct {
	Dir        string   `json:"dir"` // of this machine
	Files      []Change `json:"files"`
	Repository string   `json:"repository,omitempty"` // what it has done in .git, in words
	Patch      string   `json:"patch,omitempty"`      // a unified diff; MaxPatch bytes at most
	Cut        bool     `json:"cut,omitempty"`        // Patch is not all
}

// MaxPatch bounds the text of Changes.Patch.
const MaxPatch = 256 << 10

// Change is a file that was changed.
type Change struct {
	Kind string `json:"kind"` // "added", "modified", "deleted", "type"
	Path string `json:"path"`
	Both bool   `json:"both,omitempty"` // it was changed on this machine, too
}

// Controller does what a person who watches asks for. Each method says in a line what it has done.
type Controller interface {
	Stop(ctx context.Context, session string) (said string, err error)
	Allow(ctx context.Context, session, rule string) (said string, err error)
	Apply(ctx context.Context, session string) (said string, err error)
	// Attach starts a shell on a terminal of the session, which a process of this machine keeps, and returns its id.
	Attach(ctx context.Context, session string) (terminal string, err error)
	// Type types a text into such a terminal, or presses keys.
	Type(ctx context.Context, terminal, text string, keys []string) error
}
