// Package mcpcmd is the command mcp: it puts this program's server into the configuration of clients
// that run agents, and takes it out again.
package mcpcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
	"github.com/sandboxbash/sandboxbash/internal/cli/flags"
	"github.com/sandboxbash/sandboxbash/internal/cli/stdio"
	"github.com/sandboxbash/sandboxbash/internal/merge"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// installer edits the files of clients.
type installer struct {
	streams *stdio.Streams
	env     *core.Environment
	cfg     *core.Configuration

	scope                             string
	dryRun, keepShell, hook, approves bool
	program                           string // the path of this one
}

// Command is the command mcp.
func Command(p *core.Parts) *cobra.Command {
	a := &installer{streams: p.Streams, env: p.Env, cfg: p.Cfg}
	c := flags.Family("mcp", "Put the MCP server into the configuration of clients",
		`  sandboxbash mcp install claude
  sandboxbash mcp install --dry-run codex zed
  sandboxbash mcp status
  sandboxbash mcp uninstall claude`,
		a.installCommand(), a.uninstallCommand(), a.statusCommand())
	c.GroupID = flags.GroupAgents
	return c
}

func (a *installer) scoped(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.scope, "scope", string(user), "whose configuration: user, for all your projects, or project, for everyone who works in this directory")
	cmd.Flags().BoolVar(&a.dryRun, "dry-run", false, "show what would change, and change nothing")
	_ = cmd.RegisterFlagCompletionFunc("scope", cobra.FixedCompletions([]string{string(user), string(project)}, cobra.ShellCompDirectiveNoFileComp))
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return slices.DeleteFunc(names(), func(n string) bool { return slices.Contains(args, n) }), cobra.ShellCompDirectiveNoFileComp
	}
}

func (a *installer) installCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "install [flags] CLIENT...",
		Short: "Have clients use the tool bash of a sandbox, and not their own shell",
		Long: `Put "sandboxbash serve mcp" into the configuration of a client, switch the client's own
shell off, and let calls run for an hour. A client whose shell no file switches off is
named, with how to do it. Clients are ` + strings.Join(names(), ", ") + `.

The workspace is a bind of the project, because these clients read and edit its files
themselves, on this machine: with a copy, commands would not see those edits. --workspace
copy:. has the commands work on a copy all the same.

Claude Code's own command makes its entry, if it is on PATH. Other files are changed where
it is needed, and every other byte stays. Files that are links, or that are not understood,
are refused and named with line and column. A copy of each changed file is kept in the state
directory. A second install changes nothing. No token or secret is written.

With --hook Claude Code keeps its tool Bash, whose commands run in the session that
sandboxbash session start has started for the directory: see sandboxbash hook claude.`,
		Example: `  sandboxbash mcp install claude
  sandboxbash mcp install --dry-run codex zed
  sandboxbash mcp install --scope project --workspace copy:. cursor
  sandboxbash mcp install claude --hook`,
		Args: flags.Args(1, -1, "names of clients"),
	}
	a.scoped(cmd)
	flags.Add(cmd, "workspace")
	cmd.Flags().Lookup("workspace").DefValue = "bind:."
	cmd.Flags().BoolVar(&a.keepShell, "keep-shell", false, "leave the client's own shell as it is: its commands run on this machine")
	cmd.Flags().BoolVar(&a.hook, "hook", false, "for claude: run the commands of its own tool Bash in a session, in place of the server")
	cmd.Flags().BoolVar(&a.approves, "approve", false, "with --hook: let the commands run without asking the user")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.load(cmd); err != nil {
			return err
		}
		list, s, err := a.chosen(args)
		switch {
		case err != nil:
			return err
		case a.approves && !a.hook:
			return exit.Misuse("add --hook, or leave --approve out", "--approve is about the hook")
		case a.hook && slices.ContainsFunc(list, func(c client) bool { return c.add == nil }):
			return exit.Misuse("name claude alone", "--hook is for claude")
		case a.hook && (a.keepShell || cmd.Flags().Changed("workspace")):
			return exit.Misuse("leave one of them out", "--hook cannot be given together with --keep-shell or --workspace")
		}
		workspace := ""
		if cmd.Flags().Changed("workspace") {
			if _, err := sandbox.ParseWorkspace(a.cfg.Workspace); err != nil {
				return exit.Misuse("", "--workspace: %v", err)
			}
			workspace = cmd.Flags().Lookup("workspace").Value.String()
		}
		return each(list, func(c client) error { return a.install(cmd.Context(), c, s, workspace) })
	}
	return cmd
}

// load makes the configuration, and finds this program.
func (a *installer) load(cmd *cobra.Command) error {
	err := a.cfg.Load(cmd)
	if err == nil {
		a.program, err = os.Executable()
	}
	return err
}

// each does something for each client. One that fails does not keep the others from it.
func each(list []client, do func(client) error) error {
	var all []error
	for _, c := range list {
		if err := do(c); err != nil {
			all = append(all, err)
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return errors.Join(all...)
}

// chosen are the clients that words name.
func (a *installer) chosen(args []string) ([]client, scope, error) {
	var list []client
	for _, name := range args {
		c, ok := named(name)
		if !ok {
			return nil, "", exit.Misuse("clients are "+strings.Join(names(), ", "), "there is no client %q", name)
		}
		list = append(list, c)
	}
	s := scope(a.scope)
	if s != user && s != project {
		return nil, "", exit.Misuse("say user or project", "--scope %q is not known", a.scope)
	}
	if a.env.StateDir() == "" {
		return nil, "", exit.Misuse("set HOME", "there is no home directory")
	}
	return list, s, nil
}

func (a *installer) places() places {
	home := a.env.Getenv("HOME")
	if home == "" {
		home = a.env.Getenv("USERPROFILE")
	}
	return places{home: home, project: core.ThisDirectory(), getenv: a.env.Getenv}
}

func (a *installer) base(s scope) string {
	if s == project {
		return a.places().project
	}
	return a.places().home
}

func (a *installer) stateDir() string { return filepath.Join(a.env.StateDir(), "sandboxbash") }

// start is how a client is to start the server. A file of a project is for other machines too, so it
// names the program and not its path.
func (a *installer) start(c client, s scope, workspace string) start {
	st := start{command: a.program, args: []string{"serve", "mcp", "--workspace", cmp.Or(workspace, "bind:"+cmp.Or(c.folder, "."))}}
	if s == project {
		st.command = "sandboxbash"
	}
	return st
}

// edits are what install makes for a client.
func (a *installer) edits(c client, s scope, st start) []edit {
	if a.hook {
		return []edit{hookEdit(a.places(), s, st.command, a.approves)}
	}
	all := c.edits(a.places(), s, st)
	if a.keepShell {
		all = slices.DeleteFunc(all, func(e edit) bool { return e.what == theShell })
	}
	return all
}

// tell prints a line about a client.
func (a *installer) tell(format string, args ...any) {
	fmt.Fprintf(a.streams.Stdout, "%s\n", a.streams.Safe(fmt.Sprintf(format, args...)))
}

func (a *installer) install(ctx context.Context, c client, s scope, workspace string) error {
	st := a.start(c, s, workspace)
	edits := a.edits(c, s, st)
	known, err := loadRecords(a.stateDir())
	if err != nil {
		return err
	}
	before := a.recorded(known, c, s)
	files, err := a.open(s, edits, before)
	if err != nil {
		return fmt.Errorf("%s: %w", c.title, err)
	}
	var made []record
	byCommand := false
	for _, old := range before { // what an install with other words has written
		if f := files[old.File]; f != nil && !slices.ContainsFunc(edits, func(e edit) bool { return sameEdit(e, old) }) && f.state(old.edit()) == same {
			if err := f.unset(old.edit()); err != nil {
				return err
			}
		}
	}
	for _, e := range edits {
		f := files[e.file]
		switch f.state(e) {
		case same:
			if known.has(c, s, e) {
				made = append(made, a.keptRecord(known, c, s, e))
			}
			continue
		case another:
			if e.what == theShell {
				a.tell("%s: %s has %s with another value, which was left as it is: its own shell may run on this machine", c.title, f.path, strings.Join(e.path, "."))
				continue
			}
			if !known.has(c, s, e) {
				return exit.Misuse("remove it there, or rename it", "%s: %s has %s, which this program has not written", c.title, f.path, strings.Join(e.path, "."))
			}
		case absent:
		}
		if e.what == theServer && c.add != nil && a.findCommand(c) != "" {
			byCommand = true
			made = append(made, recordOf(c, s, e, false))
			continue
		}
		created := !f.there || slices.ContainsFunc(before, func(r record) bool { return r.File == f.path && r.Created })
		if e.keep = f.depth(e); e.keep == len(e.path) && !e.element { // it replaces one of this program's
			e.keep = a.keptRecord(known, c, s, e).Keep
		}
		if err := f.set(e); err != nil {
			return err
		}
		made = append(made, recordOf(c, s, e, created))
	}
	changed, err := a.write(files, nil)
	if err != nil {
		return fmt.Errorf("%s: %w", c.title, err)
	}
	if byCommand {
		if changed = true; !a.dryRun {
			if known.has(c, s, edits[0]) { // with other words: the client's command does not replace an entry
				if err := a.runCommand(ctx, c, c.remove(s)); err != nil {
					return err
				}
			}
		}
		if err := a.runCommand(ctx, c, c.add(s, st)); err != nil {
			return err
		}
	}
	if !a.dryRun {
		if err := known.put(c, s, keys(files), made); err != nil {
			return err
		}
	}
	a.after(c, s, changed)
	return nil
}

// after says what was done, and what the user has to do.
func (a *installer) after(c client, s scope, changed bool) {
	switch {
	case a.dryRun:
	case changed:
		a.tell("%s: installed (%s); restart it, or start a new conversation", c.title, s)
	default:
		a.tell("%s: installed before (%s); nothing was changed", c.title, s)
	}
	if c.byHand != nil && !a.keepShell {
		if how := c.byHand(s); how != "" {
			a.tell("%s: its own shell runs on this machine until you switch it off: %s", c.title, how)
		}
	}
}

func sameEdit(e edit, r record) bool {
	return e.file == r.File && slices.Equal(e.path, r.Path) && e.element == r.Element && (!e.element || string(compact(e.value)) == string(compact(r.Value)))
}

// keptRecord is the record that there is of an edit.
func (a *installer) keptRecord(known *records, c client, s scope, e edit) record {
	for _, r := range known.of(c, s) {
		if r.File == e.file && slices.Equal(r.Path, e.path) {
			return r
		}
	}
	return recordOf(c, s, e, false)
}

func keys(files map[string]*file) (all []string) {
	for path := range files {
		all = append(all, path)
	}
	slices.Sort(all)
	return all
}

// open reads the files of edits and of records.
func (a *installer) open(s scope, edits []edit, list []record) (map[string]*file, error) {
	files := map[string]*file{}
	var paths []string
	for _, e := range edits {
		paths = append(paths, e.file)
	}
	for _, r := range list {
		paths = append(paths, r.File)
	}
	for _, path := range paths {
		if files[path] != nil {
			continue
		}
		f, err := open(a.base(s), path, s)
		if err != nil {
			return nil, err
		}
		files[path] = f
	}
	return files, nil
}

// write writes the files that have changed, or shows how they would. Those that this program has created and
// that hold nothing any more are removed. It reports whether there were any changes.
func (a *installer) write(files map[string]*file, created map[string]bool) (changed bool, err error) {
	for _, path := range keys(files) {
		f := files[path]
		if !f.changed() {
			continue
		}
		changed = true
		remove := created[path] && f.empty()
		if a.dryRun {
			a.show(f, remove)
			continue
		}
		copied, err := f.save(filepath.Join(a.stateDir(), "client-copies"), remove)
		if err != nil {
			return changed, err
		}
		switch {
		case remove:
			a.tell("%s: removed; as it was, it is in %s", f.path, copied)
		case copied != "":
			a.tell("%s: changed; as it was, it is in %s", f.path, copied)
		default:
			a.tell("%s: created", f.path)
		}
	}
	return changed, nil
}

// show prints a file's changes.
func (a *installer) show(f *file, remove bool) {
	now := f.now
	if remove {
		now = nil
	}
	was, name := f.path, f.path
	if !f.there {
		was = "/dev/null"
	}
	if remove {
		name = "/dev/null"
	}
	hunks, _, _ := merge.Unified(f.was, now)
	fmt.Fprintf(a.streams.Stdout, "--- %s\n+++ %s\n%s", a.streams.Safe(was), a.streams.Safe(name), hunks)
}

// findCommand returns the path of the client's own command, "" if it is not on PATH.
func (a *installer) findCommand(c client) string {
	for _, dir := range filepath.SplitList(a.env.Getenv("PATH")) {
		path := filepath.Join(dir, c.name)
		if info, err := os.Stat(path); filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// commandTime bounds a client's own command.
const commandTime = 30 * time.Second

// runCommand runs the client's own command, or shows it.
func (a *installer) runCommand(ctx context.Context, c client, words []string) error {
	quoted := []string{c.name}
	for _, w := range words {
		quoted = append(quoted, shellQuoted(w))
	}
	shown := strings.Join(quoted, " ")
	if a.dryRun {
		a.tell("%s", shown)
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, commandTime, fmt.Errorf("it took longer than %v", commandTime))
	defer cancel()
	cmd := osexec.CommandContext(ctx, a.findCommand(c), words...)
	cmd.Env = a.env.All()
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return exit.Misuse("correct what it says, and try again", "%s: %v\n%s", shown, err, strings.TrimSpace(string(out)))
	}
	a.tell("%s: done", shown)
	return nil
}

func (a *installer) uninstallCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "uninstall [flags] CLIENT...",
		Short: "Take out of clients what install has put there, and nothing else",
		Long: `Take out of the configuration of clients what mcp install has put there: what has another
value now was changed by the user, is left, and is named. A file that install has created
and that holds nothing else is removed.`,
		Example: "  sandboxbash mcp uninstall claude\n  sandboxbash mcp uninstall --dry-run --scope project cursor",
		Args:    flags.Args(1, -1, "names of clients"),
	}
	a.scoped(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.load(cmd); err != nil {
			return err
		}
		list, s, err := a.chosen(args)
		if err != nil {
			return err
		}
		return each(list, func(c client) error { return a.uninstall(cmd.Context(), c, s) })
	}
	return cmd
}

func (a *installer) uninstall(ctx context.Context, c client, s scope) error {
	known, err := loadRecords(a.stateDir())
	if err != nil {
		return err
	}
	list := a.recorded(known, c, s)
	if len(list) == 0 {
		a.tell("%s: nothing is installed (%s)", c.title, s)
		return nil
	}
	files, err := a.open(s, nil, list)
	if err != nil {
		return fmt.Errorf("%s: %w", c.title, err)
	}
	created, byCommand := map[string]bool{}, false
	for _, r := range list {
		e, f := r.edit(), files[r.File]
		created[r.File] = created[r.File] || r.Created
		switch f.state(e) {
		case another:
			a.tell("%s: %s has %s with another value than was installed, which was left as it is", c.title, f.path, strings.Join(e.path, "."))
		case same:
			if e.what == theServer && c.remove != nil && !r.Created && a.findCommand(c) != "" {
				byCommand = true
				continue
			}
			if err := f.unset(e); err != nil {
				return err
			}
		case absent:
		}
	}
	if _, err := a.write(files, created); err != nil {
		return fmt.Errorf("%s: %w", c.title, err)
	}
	if byCommand {
		if err := a.runCommand(ctx, c, c.remove(s)); err != nil {
			return err
		}
	}
	if a.dryRun {
		return nil
	}
	if err := known.put(c, s, keys(files), nil); err != nil {
		return err
	}
	a.tell("%s: uninstalled (%s)", c.title, s)
	return nil
}

// recorded are the records of a client in a scope: what was installed in the directories of other projects is not
// among them.
func (a *installer) recorded(known *records, c client, s scope) []record {
	list := known.of(c, s)
	if s == project {
		list = slices.DeleteFunc(list, func(r record) bool { return !below(a.base(s), r.File) })
	}
	return list
}

func below(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// A row of status is one client in one scope.
type row struct {
	Client string   `json:"client"`
	Scope  scope    `json:"scope"`
	Server string   `json:"server"` // installed, other, none, unreadable
	Shell  string   `json:"shell"`  // off, on, by-hand, hook
	Files  []string `json:"files"`
	Error  string   `json:"error,omitempty"`
}

func (a *installer) statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status [flags] [CLIENT...]",
		Short: "Show which clients use the server, and whether their own shell is off",
		Long: `Show for each client whether it has the server, and where the commands of its own shell
run. SERVER is installed, other (an entry of that name that install has not written), none
or unreadable. SHELL is off, hook (its commands run in a session), on, or by-hand: no file
says so, and mcp install names the way.`,
		Example: "  sandboxbash mcp status\n  sandboxbash mcp status --json claude",
	}
	flags.Add(cmd, "json")
	cmd.ValidArgsFunction = cobra.FixedCompletions(names(), cobra.ShellCompDirectiveNoFileComp)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.load(cmd); err != nil {
			return err
		}
		if len(args) == 0 {
			args = names()
		}
		a.scope = string(user)
		list, _, err := a.chosen(args)
		if err != nil {
			return err
		}
		var rows []row
		for _, c := range list {
			for _, s := range []scope{user, project} {
				if r := a.status(c, s); s == user || r.Server != "none" || r.Shell == "off" || r.Shell == "hook" {
					rows = append(rows, r)
				}
			}
		}
		return core.List(a.cfg, rows, "CLIENT\tSCOPE\tSERVER\tSHELL\tFILE", func(r row) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%s", r.Client, r.Scope, r.Server, r.Shell, a.streams.Safe(a.short(r.Files[0])))
		})
	}
	return cmd
}

// short is a path as people write it.
func (a *installer) short(path string) string {
	if rel, err := filepath.Rel(a.places().project, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	if rel, err := filepath.Rel(a.places().home, path); err == nil && filepath.IsLocal(rel) {
		return "~" + string(filepath.Separator) + rel
	}
	return path
}

// status looks at the files of a client.
func (a *installer) status(c client, s scope) row {
	r := row{Client: c.name, Scope: s, Server: "none", Shell: "on"}
	edits := c.edits(a.places(), s, a.start(c, s, ""))
	if !slices.ContainsFunc(edits, func(e edit) bool { return e.what == theShell }) {
		r.Shell = "by-hand"
	}
	known, err := loadRecords(a.stateDir())
	if err != nil {
		known = &records{}
	}
	for _, e := range edits {
		if !slices.Contains(r.Files, e.file) {
			r.Files = append(r.Files, e.file)
		}
		f, err := open(a.base(s), e.file, s)
		if err != nil {
			r.Server, r.Error = "unreadable", err.Error()
			continue
		}
		switch got := f.state(e); {
		case e.what == theServer && got != absent && (got == same || a.installed(f, known.of(c, s))):
			r.Server = "installed"
		case e.what == theServer && got != absent:
			r.Server = "other"
		case e.what == theShell && got == same:
			r.Shell = "off"
		}
	}
	if c.add != nil && r.Shell == "on" { // the hook may have other words than an install of now would write
		for _, one := range known.of(c, s) {
			if one.What != theHook || !below(a.base(s), one.File) && s == project {
				continue
			}
			if f, err := open(a.base(s), one.File, s); err == nil && f.state(one.edit()) == same {
				r.Shell = theHook
			}
		}
	}
	return r
}

// installed reports whether a file has the server as it was installed, with whatever words.
func (a *installer) installed(f *file, list []record) bool {
	return slices.ContainsFunc(list, func(r record) bool { return r.What == theServer && r.File == f.path && f.state(r.edit()) == same })
}
