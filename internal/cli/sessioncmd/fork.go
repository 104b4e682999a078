package sessioncmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/holder"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// forker is the command fork.
type forker struct {
	*starter

	count   int // flags
	pause   bool
	secrets []string
}

func (a *starter) forkCommand() *cobra.Command {
	f := &forker{starter: a}
	cmd := &cobra.Command{
		Use: "fork [flags] [SESSION]", Short: "Start sessions with a copy of a session's workspace",
		Long: `Start sessions with a copy of a session's workspace, from the same image and with the
same settings, and print their ids. They have no processes, and what commands have written
outside of the workspace is not copied. Diff and apply work in them as in the session.

The session may run, be paused, or have ended and its workspace be kept. Its commands go
on while it is copied: what changes meanwhile is named. --pause has them stand still.

Forks have the caches, mounts and network rules of the session, and no secret of it but
those that --secret names, which must be configured here.`,
		Example: `  sandboxbash session fork
  sandboxbash session fork web --count 3 --name try
  sandboxbash session fork web --pause --json`,
		ValidArgsFunction: a.connection.CompleteSession,
	}
	flags.Add(cmd, "session.id", "session.name", "json", "quiet")
	cmd.Flags().IntVar(&f.count, "count", 1, fmt.Sprintf("how many sessions to start, at most %d; several are named NAME-1, NAME-2 and so on", sandbox.MaxForks))
	cmd.Flags().BoolVar(&f.pause, "pause", false, "stop the session's processes while its workspace is copied, so that the copy is of one moment")
	cmd.Flags().StringArrayVar(&f.secrets, "secret", nil, "give the forks the configured secret of this name; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("secret", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("count", cobra.NoFileCompletions)
	cmd.RunE = a.notes.OneObject(a.connection.AsksOf("", f.run))
	return cmd
}

// named returns the configured secrets with these names.
func (f *forker) named() ([]sandbox.Secret, error) {
	if len(f.secrets) == 0 {
		return nil, nil
	}
	if err := f.starter.secrets.Ready(); err != nil {
		return nil, err
	}
	hosted := f.starter.secrets.Hosted()
	var out []sandbox.Secret
	for _, name := range f.secrets {
		i := slices.IndexFunc(hosted, func(s sandbox.Secret) bool { return s.Name == name })
		if i < 0 {
			return nil, exit.Misuse("configure it under secrets:, with the hosts that it is for", "--secret %s: there is no secret of that name with hosts", name)
		}
		if !slices.ContainsFunc(out, func(s sandbox.Secret) bool { return s.Name == name }) {
			out = append(out, hosted[i])
		}
	}
	return out, nil
}

// forked is a fork as --json shows it.
type forked struct {
	sandbox.Info
	Copied sandbox.Taken `json:"copied"`
}

func (f *forker) run(ctx context.Context, sessions *sandbox.Engine, ref string, _ []string) error {
	secrets, err := f.named()
	if err != nil {
		return err
	}
	from, err := f.connection.Find(ctx, sessions, ref)
	if err != nil {
		return err
	}
	allow, deny, err := holder.LoadRules(f.env, from.ID)
	changed := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	wait := f.cfg.Waiting("copying the workspace")
	made, err := sessions.Fork(ctx, from.ID, sandbox.ForkOptions{
		Count: f.count, Name: f.cfg.Session.Name, Pause: f.pause, Secrets: secrets,
		Change: func(spec *sandbox.Spec) {
			spec.Directory, spec.Detached = core.ThisDirectory(), true
			if spec.Lease <= sandbox.DefaultLease { // that of a session that belongs to a process
				spec.Lease = f.cfg.Idle()
			}
			spec.Keep = f.cfg.KeepFor()
			if changed {
				spec.Allow, spec.Deny = allow, deny
			}
		},
	})
	wait.Done()
	list := []forked{}
	for _, one := range made {
		if holdErr := f.hold(ctx, one); holdErr != nil {
			err = errors.Join(err, holdErr)
			continue
		}
		list = append(list, forked{one.Info(), one.Copied})
	}
	if err != nil && len(list) > 0 {
		f.notes.Add(fmt.Sprintf("%d of %d forks were made before that, and are there", len(list), f.count))
	}
	f.tell(made, from)
	return errors.Join(err, f.print(list))
}

// hold has the network of a fork carried, as that of a session that was started.
func (f *forker) hold(ctx context.Context, one sandbox.Fork) error {
	f.env.NoteUse(one.ID())
	if rules := one.Info().Rules; rules == nil || len(rules.Allow) == 0 {
		return nil
	}
	err := f.connection.HoldNetwork(ctx, one.ID())
	if err != nil {
		err = errors.Join(err, one.Stop(context.WithoutCancel(ctx)))
	}
	return err
}

// tell adds the notes of forks. Those that are alike are said once.
func (f *forker) tell(made []sandbox.Fork, from sandbox.Info) {
	seen := map[string]bool{}
	add := func(text string) {
		if !seen[text] {
			seen[text] = true
			f.notes.Add(text)
		}
	}
	for _, one := range made {
		f.notes.OfSession(one.Session)
		for _, text := range one.Copied.Notes("copied") {
			add(text)
		}
	}
	if len(made) == 0 {
		return
	}
	if from.Profile == sandbox.Dev {
		add("profile dev: what was installed outside of the workspace is not in a fork")
	}
	if from.Rules != nil && len(from.Rules.Secrets) > 0 && len(f.secrets) == 0 {
		var names []string
		for _, s := range from.Rules.Secrets {
			names = append(names, s.Name)
		}
		add("secrets are not inherited: " + strings.Join(names, ", ") + "; --secret NAME gives one to a fork")
	}
}

func (f *forker) print(list []forked) error {
	if f.cfg.JSON {
		return stdio.PrintJSON(f.streams.Stdout, struct {
			Forks []forked `json:"forks"`
			Notes []string `json:"notes,omitempty"`
		}{list, f.notes.Gathered()})
	}
	for _, one := range list {
		if _, err := fmt.Fprintln(f.streams.Stdout, one.ID); err != nil {
			return err
		}
	}
	return nil
}
