package tool

import (
	"cmp"
	"context"
	"embed"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Every command is a shell of its own. Under contract agent each is given what the
// one before it has exported: bash reads shell/prelude.bash before the command, by
// BASH_ENV, which takes that from a file, and sets an EXIT trap by which
// shell/save.bash writes such a file at the end. The command's text, its exit code
// and its output stay as they are. The files are the session user's own: what is
// in them is as trustworthy as the commands are.
//
//go:embed shell
var shellFiles embed.FS

// shellState is what commands of one Session share. The agent's run one at a time;
// the user's run beside them, and write to it only if none of the agent's does.
type shellState struct {
	box  box
	home string
	key  string // of the files' names
	lib  shellLib
	warn func(msg string, args ...any)

	mu     sync.Mutex // guards all that follows
	writer *running   // whose file is taken over at its end; nil: nobody's

	slot  int    // the file that the next command may write: it, or the one beside it
	seq   int    // of marks
	from  string // the file to read; "" if there is nothing
	mark  string // of that file
	worth bool   // something may have been kept
	funcs bool   // functions may have been kept, so that any word may be one
	wild  bool   // such a function may replace the shell
	lost  string // why what was kept is gone, if the agent has not been told
}

// shellLib is what is the same for all commands.
type shellLib struct {
	text string // of the user's file for interactive shells

	token chan struct{} // who has it may look at what follows
	tried bool
	dir   string // of prelude.bash; "" if it could not be placed
	rc    string // the file with what text has set; "" if there is none
}

func newShellState(b box, home, key string, o SessionOptions) *shellState {
	s := &shellState{box: b, home: home, key: key, warn: o.Log.Warn}
	s.lib.text, s.lib.token = o.RC, make(chan struct{}, 1)
	s.lib.token <- struct{}{}
	return s
}

// shellUse is a command's use of the state.
type shellUse struct {
	effect effect
	to     string // the file that it writes; "" if it does not
	mark   string
}

// maxRC bounds the time that a file for interactive shells may take.
const maxRC = 2 * time.Second

// prepare places the files of shell, and has the user's file read, once. dir is ""
// if that did not work.
func (s *shellState) prepare(ctx context.Context) (dir, rc string) {
	l := &s.lib
	select {
	case <-l.token:
		defer func() { l.token <- struct{}{} }()
	case <-ctx.Done():
		return "", ""
	}
	if l.tried {
		return l.dir, l.rc
	}
	sub, err := fs.Sub(shellFiles, "shell")
	if err == nil {
		l.dir, err = s.box.Place(ctx, s.key+"-shell", "lib", sandbox.Tree{FS: sub, Name: ".", Limit: 1 << 20})
	}
	if err != nil {
		l.tried = ctx.Err() == nil
		s.warn("the shell keeps nothing between commands", "error", err)
		return "", ""
	}
	l.tried = true
	if l.text != "" {
		l.rc = s.readRC(ctx, l.text)
	}
	return l.dir, l.rc
}

// readRC has the user's file read, and returns the file with what it has set.
func (s *shellState) readRC(ctx context.Context, text string) string {
	script, err := shellFiles.ReadFile("shell/snapshot.bash")
	if err != nil {
		panic(err) // it is embedded
	}
	file := s.file("rc")
	_, st, err := s.box.Ask(ctx, sandbox.Command{
		Script: string(script), Args: []string{file}, Stdin: strings.NewReader(text), Env: NonInteractive().List(), Timeout: maxRC,
	})
	if err != nil || st.Reason != exec.Exited || st.Code != 0 {
		s.warn("the rc file is left out", "error", err, "reason", st.Reason, "code", st.Code)
		return ""
	}
	return file
}

func (s *shellState) file(name string) string {
	return path.Join(s.home, ".sandboxbash-"+s.key+"-"+name)
}

// enter gives a command the state: what is kept, and what the user has set; one
// that has no share in the state gets the latter only. It says in the plan's
// notices if what was kept is gone.
func (s *Session) enter(ctx context.Context, c *running, cmd *sandbox.Command) shellUse {
	state := c.shell
	if c.plan.Contract != Agent || state == nil && s.opts.RC == "" {
		return shellUse{}
	}
	if state != nil && state.begin(c, cmd.Script) && s.opts.RC == "" {
		return shellUse{} // nothing to read, nothing to write
	}
	dir, rc := s.shell.prepare(ctx)
	if dir == "" {
		return shellUse{}
	}
	words := []string{cmp.Or(rc, "-"), "-", "-", "-", "-"}
	var use shellUse
	if state != nil {
		use = state.share(c, cmd.Script, rc != "", words)
	}
	words = append(words, c.plan.own()...)
	cmd.Env = append(cmd.Env, "BASH_ENV="+dir+"/prelude.bash", "SANDBOXBASH_SHELL="+strings.Join(words, " "))
	return use
}

// begin makes a command the writer, unless it is the user's and there is one. It
// tells whether there is nothing to read or write.
func (s *shellState) begin(c *running, script string) (nothing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writer != nil && !c.user {
		s.letGo() // the user's goes on
	}
	if s.writer == nil || !c.user {
		s.writer = c
	}
	if s.lost != "" && !c.user {
		c.plan.Notices = append(c.plan.Notices, goneNotice(s.lost))
		s.lost = ""
	}
	effect, _ := effectOf(script)
	return !s.worth && effect == noEffect
}

// share says in words what a command reads, and what it writes if it is the writer.
func (s *shellState) share(c *running, script string, rc bool, words []string) (use shellUse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.from != "" {
		words[1], words[2] = s.from, s.mark
	}
	if s.writer != c {
		return use
	}
	var functions bool
	use.effect, functions = effectOf(script)
	if rc || s.funcs {
		use.effect = max(use.effect, changes) // any word may be a function or an alias
	}
	if s.wild {
		use.effect = replaces
	}
	s.funcs = s.funcs || functions
	s.wild = s.wild || functions && use.effect == replaces
	s.address(&use, words)
	return use
}

// address says where a command writes. It needs mu.
func (s *shellState) address(use *shellUse, words []string) {
	if use.effect == noEffect {
		return
	}
	s.seq++
	use.to, use.mark = s.file(strconv.Itoa(s.slot)), strconv.Itoa(s.seq)
	if use.to == s.from {
		use.to = s.file(strconv.Itoa(s.slot + 1))
	}
	words[3], words[4] = use.to, use.mark
}

// own are the variables that a call has set for itself alone.
func (p Plan) own() []string {
	defaults := NonInteractive()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(p.Env)), func(name string) bool {
		_, ok := defaults[name]
		return ok
	})
}

func goneNotice(why string) string {
	return "Exported variables and functions of earlier commands are gone: " + why + "."
}

// leave takes the state over from a command, or finds that it is gone.
func (s *Session) leave(ctx context.Context, c *running, use shellUse, o *Outcome) {
	state := c.shell
	if state == nil || c.plan.Contract != Agent {
		return
	}
	why, known := "", true
	switch {
	case o.end() == notStarted || o.Err != nil && o.end() == cancelled:
		known = false // there was no shell
	case o.Run.Killed == "reset" || o.Run.Killed == "removed":
		why = "the session was reset"
	case o.end() == timedOut:
		why = "a command ran out of time"
	case o.end() == ended && o.Reason != exec.Exited:
		why = "a signal ended the shell"
	case o.end() != ended:
		why = "a command was ended"
	case use.to == "":
		known = false // it has only read
	case use.effect == replaces && !state.written(ctx, use):
		why = "the command has ended the shell by exec, or set an EXIT trap of its own"
	}
	state.mu.Lock()
	defer state.mu.Unlock()
	if state.writer != c {
		return // it has only read, or another has begun since
	}
	state.writer = nil
	if known {
		state.takeOver(c, use, o, why)
	}
}

// takeOver takes what the writer has written, or says why there is nothing. It
// needs mu.
func (s *shellState) takeOver(c *running, use shellUse, o *Outcome, why string) {
	worth := s.worth || use.effect != noEffect
	if why == "" {
		s.from, s.mark, s.worth = use.to, use.mark, worth
		return
	}
	s.from, s.worth, s.funcs, s.wild = "", false, false, false
	if !worth {
		return
	}
	o.Run.StateLost = why
	if o.end() == ended {
		c.plan.Notices = append(c.plan.Notices, goneNotice(why))
		return
	}
	s.lost = why // the result has no room for it: the next has
}

// handedOver leaves a command's file to it: it is a job, and goes on. What was kept
// before it stays.
func (s *shellState) handedOver(c *running, use shellUse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writer != c {
		return
	}
	s.writer = nil
	if use.to != "" {
		s.letGo()
	}
}

// letGo leaves the files that may be written now to who writes them. It needs mu.
func (s *shellState) letGo() { s.slot += 2 }

// written asks whether a command has written its file.
func (s *shellState) written(ctx context.Context, use shellUse) bool {
	const script = `IFS= read -r line <"$1" && [ "$line" = "[[ \$1 == $2 ]] || return 0" ]`
	_, st, err := s.box.Ask(context.WithoutCancel(ctx), sandbox.Command{
		Script: script, Args: []string{use.to, use.mark}, Timeout: maxRC,
	})
	if err != nil {
		s.warn("ask whether the shell's state was kept", "error", err)
	}
	return err == nil && st.Reason == exec.Exited && st.Code == 0
}
