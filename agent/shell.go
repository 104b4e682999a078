package agent

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
	"github.com/sandboxbash/sandboxbash/tool"
)

// Every command runs in a shell of its own. Under contract agent a shell starts with the
// variables and functions that the previous one has exported. BASH_ENV makes bash read
// shell/prelude.bash before the command. The prelude reads the state from a file, and
// sets an EXIT trap; at the end the trap lets shell/save.bash write the state to another
// file. The command's text, exit code and output are not changed. The files belong to
// the session's user, so they are as trustworthy as the commands.
//
//go:embed shell
var shellFiles embed.FS

// shellState is the state of the shell that the commands of one Session share. Commands
// of the agent run one at a time. Commands of the user run in parallel with them, and
// all of them read the state; at most one running command, the writer, replaces it:
//
//	claim     a command becomes the writer if there is none, or if it is the agent's
//	share     it gets the file to read, and the writer a file to write
//	leave     at its end the writer's file becomes the state, or the state is lost
//	handOver  the writer has become a job: its file is never read, the state stays
//
// A writer that is replaced, or has become a job, goes on and writes its file some time
// later. The slots of such files are skipped, so that no other command writes to them.
type shellState struct {
	sandbox sandboxSession
	home    string
	key     string // of the files' names
	lib     shellLib
	warn    func(msg string, args ...any)

	mu     sync.Mutex // guards all that follows
	writer *running   // the command whose file becomes the state at its end; nil: there is none

	slot     int    // the number of the file that the next writer uses; or the next one, if from is that file
	seq      int    // the last mark
	from     string // the file with the state; "" if there is none
	mark     string // identifies the writer of that file
	kept     bool   // the state may hold something
	funcs    bool   // it may hold functions, so that any word may be one
	replaces bool   // such a function may replace the shell
	lost     string // why the state was lost, if the agent has not seen a notice yet
}

// shellLib is the part of the state that is the same for all commands.
type shellLib struct {
	text string // the user's file for interactive shells

	token chan struct{} // guards what follows; taken over calls of the session
	tried bool
	dir   string // of prelude.bash; "" if it could not be placed
	rc    string // the file with what text has set; "" if there is none
}

func newShellState(b sandboxSession, home, key string, o SessionOptions) *shellState {
	s := &shellState{sandbox: b, home: home, key: key, warn: o.Log.Warn}
	s.lib.text, s.lib.token = o.RC, make(chan struct{}, 1)
	s.lib.token <- struct{}{}
	return s
}

// shellUse says how a command uses the state.
type shellUse struct {
	effect effect
	to     string // the file that it writes; "" if it writes none
	mark   string
}

// maxRC bounds how long reading the file for interactive shells may take.
const maxRC = 2 * time.Second

// prepare places the files of directory shell in the session, and lets a shell read the
// user's file, once. dir is "" if the files could not be placed.
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
		l.dir, err = s.sandbox.Place(ctx, s.key+"-shell", "lib", sandbox.Tree{FS: sub, Name: ".", Limit: 1 << 20})
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

// readRC lets a shell read the user's file. It returns a file with the result.
func (s *shellState) readRC(ctx context.Context, text string) string {
	script, err := shellFiles.ReadFile("shell/snapshot.bash")
	if err != nil {
		panic(err) // it is embedded
	}
	file := s.file("rc")
	_, st, err := s.sandbox.Ask(ctx, sandbox.Command{
		Script: string(script), Args: []string{file}, Stdin: strings.NewReader(text), Env: tool.NonInteractive().List(), Timeout: maxRC,
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

// enter makes a command read the state and the user's settings; one that does not share
// the state reads the settings only. If the state was lost the plan gets a notice.
func (s *Session) enter(ctx context.Context, c *running, cmd *sandbox.Command) shellUse {
	state := c.shell
	if c.plan.Contract != tool.Agent || state == nil && s.opts.RC == "" {
		return shellUse{}
	}
	if state != nil && state.claim(c, cmd.Script) && s.opts.RC == "" {
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
	words = append(words, ownVariables(c.plan)...)
	cmd.Env = append(cmd.Env, "BASH_ENV="+dir+"/prelude.bash", "SANDBOXBASH_SHELL="+strings.Join(words, " "))
	return use
}

// claim makes a command the writer, unless it is the user's and there is a writer. It
// reports whether the command has nothing to read or write.
func (s *shellState) claim(c *running, script string) (nothing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writer != nil && !c.user {
		s.skipSlots() // the user's command goes on
	}
	if s.writer == nil || !c.user {
		s.writer = c
	}
	if s.lost != "" && !c.user {
		c.plan.Notices = append(c.plan.Notices, goneNotice(s.lost))
		s.lost = ""
	}
	effect, _ := effectOf(script)
	return !s.kept && effect == noEffect
}

// share sets the words for the prelude: the file that a command reads and, for the
// writer, the file that it writes.
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
	if s.replaces {
		use.effect = replaces
	}
	s.funcs = s.funcs || functions
	s.replaces = s.replaces || functions && use.effect == replaces
	s.address(&use, words)
	return use
}

// address picks the file that a command writes. It needs mu.
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

// ownVariables returns the names of the variables that a call sets for itself alone.
func ownVariables(p tool.Plan) []string {
	defaults := tool.NonInteractive()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(p.Env)), func(name string) bool {
		_, ok := defaults[name]
		return ok
	})
}

func goneNotice(why string) string {
	return "Exported variables and functions of earlier commands are gone: " + why + "."
}

// leave takes the state over from a command that has ended, or notes that it is lost.
func (s *Session) leave(ctx context.Context, c *running, use shellUse, o *tool.Outcome) {
	state := c.shell
	if state == nil || c.plan.Contract != tool.Agent {
		return
	}
	why, known := "", true
	switch {
	case o.End() == tool.EndNotStarted || o.Err != nil && o.End() == tool.EndCancelled:
		known = false // there was no shell
	case o.Run.Killed == "reset" || o.Run.Killed == "removed":
		why = "the session was reset"
	case o.End() == tool.EndTimedOut:
		why = "a command ran out of time"
	case o.End() == tool.EndExited && o.Reason != exec.Exited:
		why = "a signal ended the shell"
	case o.End() != tool.EndExited:
		why = "a command was ended"
	case use.to == "":
		known = false // it was only a reader
	case use.effect == replaces && !state.written(ctx, use):
		why = "the command has ended the shell by exec, or set an EXIT trap of its own"
	}
	state.mu.Lock()
	defer state.mu.Unlock()
	if state.writer != c {
		return // it was only a reader, or another command is the writer now
	}
	state.writer = nil
	if known {
		state.takeOver(c, use, o, why)
	}
}

// takeOver makes the writer's file the state, or drops the state if why says that it
// was lost. It needs mu.
func (s *shellState) takeOver(c *running, use shellUse, o *tool.Outcome, why string) {
	kept := s.kept || use.effect != noEffect
	if why == "" {
		s.from, s.mark, s.kept = use.to, use.mark, kept
		return
	}
	s.from, s.kept, s.funcs, s.replaces = "", false, false, false
	if !kept {
		return
	}
	o.Run.StateLost = why
	if o.End() == tool.EndExited {
		c.plan.Notices = append(c.plan.Notices, goneNotice(why))
		return
	}
	s.lost = why // this result shows no notices: the next one does
}

// handOver notes that a command has become a job. It goes on with its file, and the
// state stays as it is.
func (s *shellState) handOver(c *running, use shellUse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writer != c {
		return
	}
	s.writer = nil
	if use.to != "" {
		s.skipSlots()
	}
}

// skipSlots leaves the two current files to the command that may write one of them. It
// needs mu.
func (s *shellState) skipSlots() { s.slot += 2 }

// written reports whether a command has written its file.
func (s *shellState) written(ctx context.Context, use shellUse) bool {
	const script = `IFS= read -r line <"$1" && [ "$line" = "[[ \$1 == $2 ]] || return 0" ]`
	_, st, err := s.sandbox.Ask(context.WithoutCancel(ctx), sandbox.Command{
		Script: script, Args: []string{use.to, use.mark}, Timeout: maxRC,
	})
	if err != nil {
		s.warn("ask whether the shell's state was kept", "error", err)
	}
	return err == nil && st.Reason == exec.Exited && st.Code == 0
}
