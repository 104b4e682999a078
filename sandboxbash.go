// Package sandboxbash runs shell commands in hardened containers, for programs
// that run software agents.
//
// Open finds a container engine, Start makes a session (one long-lived container),
// and Session.Run runs a command in it. A nil error from Run means that the command
// ran and has ended, whatever its exit code; an error means that it did not run, or
// that its end is not known. Neither can be forged by the command.
//
// The types here are those of package sandbox, which documents them. Programs that need
// more use that package with engine/docker and images. Everything is safe for concurrent
// use.
//
// Nothing here writes to the standard logger of package log, but net/http does where sessions have network rules: if a
// server sends an answer that was not asked for, its first bytes are logged, and could hold a secret of Spec.Secrets.
// net/http has no setting for that. Programs with such secrets direct the logger elsewhere, as with log.SetOutput.
package sandboxbash

import (
	"context"
	"errors"
	"os"

	"github.com/sandboxbash/sandboxbash/engine/docker"
	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Types of package sandbox.
type (
	// Session is one agent's container. Stop removes it.
	Session = sandbox.Session
	// Spec is the shape of a session; its zero value has no network, a read-only root
	// and an empty workspace.
	Spec = sandbox.Spec
	// Workspace is what a session's commands work on; see ParseWorkspace.
	Workspace = sandbox.Workspace
	// Command is one command; only its Script has to be set.
	Command = sandbox.Command
	// Result is how a command has ended, and its output.
	Result = sandbox.Result
)

// How a command that ran has ended: Result.Reason.
const (
	Exited      = exec.Exited      // with Result.Code
	Signalled   = exec.Signalled   // by a signal that was not ours
	TimedOut    = exec.TimedOut    // killed after Command.Timeout
	Cancelled   = exec.Cancelled   // killed when its context ended
	OOMKilled   = exec.OOMKilled   // killed by the kernel at the session's memory limit
	OutputLimit = exec.OutputLimit // killed at its output limit
	HandedOver  = exec.HandedOver  // continues as the job Result.Job
)

// HostImage is the Spec.Image that stands for a snapshot of this machine's own
// programs. It needs no registry.
const HostImage = images.HostRef

// ParseWorkspace reads "volume", "copy:DIR" or "bind:DIR[:ro][:at=PATH]".
func ParseWorkspace(text string) (Workspace, error) { return sandbox.ParseWorkspace(text) }

// Options of an Engine. The zero value finds the engine as the docker command does.
type Options struct {
	// Address is where the container engine is, as in "unix:///var/run/docker.sock".
	// Empty: DOCKER_HOST, the current Docker context, then the default sockets.
	Address string
	// Cache is a directory for what is known about the image of this machine's programs.
	// It is created when needed. If it is empty, the programs are inspected each time.
	Cache string
	// Sessions are the options of all sessions: policy, secrets, artifacts, prepared
	// sessions. Long-lived programs set Sessions.Ahead to 1.
	Sessions sandbox.Options
}

// Engine starts and finds sessions on one container engine. Close it.
type Engine struct {
	*sandbox.Engine

	docker *docker.Client
}

// Open connects to a container engine. It returns an error that lists each address
// that was tried if none answers.
func Open(ctx context.Context, opts Options) (*Engine, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "" // there is no Docker context to find then
	}
	client, err := docker.Connect(ctx, docker.Options{
		Address: opts.Address, Home: home,
		Getenv: os.Getenv, //nolint:forbidigo // this package is what reads the environment for its user
	})
	if err != nil {
		return nil, err
	}
	resolver, err := images.New(client, images.Options{Cache: opts.Cache})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &Engine{Engine: sandbox.New(docker.NewEngine(client, images.Runner), resolver, opts.Sessions), docker: client}, nil
}

// Close releases the sessions that this process holds, which live on until they are
// stopped or their lease is over, and closes the connection to the engine. Commands
// that still run are killed.
func (e *Engine) Close(ctx context.Context) error {
	return errors.Join(e.Engine.Close(ctx), e.docker.Close())
}
