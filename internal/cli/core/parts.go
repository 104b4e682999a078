// Package core is what every command is made from: the parts of one call of the program. A
// command's constructor takes from Parts the few that the command uses.
package core

import (
	"context"
	"io"

	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
)

// Parts are those of one call of the program. Each does nothing before it is used. They are
// for constructors: what runs a command holds the parts that it uses, and no others.
type Parts struct {
	Version    string // "" in a build that is not a release
	Streams    *stdio.Streams
	Env        *Environment
	Cfg        *Configuration
	Notes      *Notes
	Secrets    *Secrets
	Artifacts  *Artifacts
	Observers  *Observers
	Connection *Connection
}

// New returns the parts of a call with its streams, before the configuration is loaded.
func New(version string, environ []string, stdin io.Reader, stdout, stderr io.Writer) *Parts {
	env := &Environment{vars: environ}
	cfg := &Configuration{env: env}
	secrets := &Secrets{env: env, cfg: cfg, ctx: context.Background()}
	streams := stdio.New(stdin, stdout, stderr, secrets.Known)
	streams.Guard(runnersOf(ciAuto, env.Getenv)) // for what is said before the configuration is known
	notes := &Notes{streams: streams, cfg: cfg, env: env}
	cfg.streams, cfg.notes, secrets.notes = streams, notes, notes
	artifacts := &Artifacts{env: env, cfg: cfg, notes: notes}
	observers := &Observers{version: version, env: env, streams: streams, cfg: cfg, notes: notes, secrets: secrets}
	connection := &Connection{env: env, streams: streams, cfg: cfg, notes: notes, secrets: secrets, artifacts: artifacts, observers: observers}
	connection.Backend = connection.configured
	return &Parts{
		Version: version, Streams: streams, Env: env, Cfg: cfg, Notes: notes, Secrets: secrets, Artifacts: artifacts, Observers: observers,
		Connection: connection,
	}
}

// Close ends what observes, and lets go of the engine.
func (p *Parts) Close() {
	p.Observers.close()
	p.Connection.Close()
}
