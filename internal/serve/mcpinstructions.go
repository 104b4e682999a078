package serve

import (
	"fmt"
	"strings"
	"time"

	"github.com/docker/go-units"

	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/tool"
)

// instructions say to a model at the start, in a few lines, where its commands run, what they can reach, what lasts,
// and how its work gets to the user. Each is true of the sessions that it will use; what it finds out by
// itself at the first command is left out.
func (o Options) instructions(tools []mcpTool, stateless bool) string {
	lines := []string{o.whereText()}
	lines = append(lines, o.workspaceLines(tools)...)
	lines = append(lines, o.networkText(tools), o.lastsText(), o.limitsText())
	if o.Contract == tool.Agent {
		lines = append(lines, "Output that is cut is whole in artifact://N, which a command can name: `grep -n error artifact://3`.")
		if o.Settings.Async || o.Settings.AutoBackground {
			lines = append(lines, "Background jobs: a later result says when one has ended; the tool job waits for them.")
		}
	}
	return strings.Join(append(lines, o.endText(stateless)), "\n")
}

// whereText says where commands run.
func (o Options) whereText() string {
	s := o.Session
	user := "root of the container, with few rights"
	if s.Profile != sandbox.Dev {
		user = "not root, and only the workspace, the home and /tmp can be written"
		if s.User.UID != 0 {
			user = fmt.Sprintf("uid %d, %s", s.User.UID, user)
		}
	}
	return fmt.Sprintf("Commands run in a sandbox, a Linux container (image %s; %s), not on the user's machine.", printable(s.Image), user)
}

// workspaceLines say what the workspace is, and how it relates to the files of the user.
func (o Options) workspaceLines(tools []mcpTool) []string {
	w := o.Session.Workspace
	target := w.Target
	switch w.Kind {
	case sandbox.WorkspaceBind:
		text := fmt.Sprintf("%s is the user's directory %s itself: file tools of yours that work there and commands here see the same files.", target, w.Dir)
		if target == w.Dir {
			text = fmt.Sprintf("%s is the user's directory itself, at the same path: file tools of yours and commands here see the same files.", target)
		}
		if w.ReadOnly {
			text += " Commands cannot write there."
		}
		return []string{text}
	case sandbox.WorkspaceCopy:
		text := fmt.Sprintf("%s is a copy of the user's directory %s. File tools of yours that work there do not see it: ", target, w.Dir)
		if offers(tools, readName) && offers(tools, editName) {
			text += "use read, write and edit, or bash."
		} else {
			text += "use bash."
		}
		switch {
		case offers(tools, diffName) && offers(tools, applyName):
			text += " diff shows what was changed; apply brings it to the user's directory, after asking the user."
		case offers(tools, diffName):
			text += " diff shows what was changed; the user applies it with `sandboxbash session apply`."
		default:
			text += " The user brings changes back with `sandboxbash session apply`."
		}
		return []string{text}
	case sandbox.WorkspaceVolume:
	}
	return []string{fmt.Sprintf("%s is empty at first; the user's files are not here.", target)}
}

// maxRulesNamed is how many network rules are named.
const maxRulesNamed = 12

// networkText says what can be reached.
func (o Options) networkText(tools []mcpTool) string {
	s := o.Session
	refused := "anything else is refused, and the result of the command names the rule that would allow it"
	if offers(tools, proposeName) {
		refused += "; network_propose asks the user for it"
	}
	switch {
	case s.Network != "" && s.Network != sandbox.NetworkNone:
		return fmt.Sprintf("Network: open (%s).", s.Network)
	case s.Rules == nil || len(s.Rules.Allow) == 0:
		if offers(tools, proposeName) {
			return "Network: none so far: " + strings.TrimPrefix(refused, "anything else is ") + "."
		}
		return "Network: none. Downloads and installs fail."
	}
	rules := s.Rules.Allow
	text := strings.Join(rules[:min(len(rules), maxRulesNamed)], ", ")
	if more := len(rules) - maxRulesNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("Network: only %s; %s.", printableRules(text), refused)
}

func printableRules(text string) string { return printable(text) }

// lastsText says what lasts from call to call.
func (o Options) lastsText() string {
	if o.Contract == tool.Agent {
		return "From call to call: files, exported variables and functions last; the working directory does not (pass cwd)."
	}
	return "From call to call only files last: not variables, not the working directory."
}

// limitsText says what a session may use.
func (o Options) limitsText() string {
	l := o.Session.Limits
	var parts []string
	if l.CPUs > 0 {
		parts = append(parts, fmt.Sprintf("%g CPUs", l.CPUs))
	}
	if l.Memory > 0 {
		parts = append(parts, units.CustomSize("%.4g %s", float64(l.Memory), 1024, []string{"B", "KiB", "MiB", "GiB", "TiB"})+" of memory")
	}
	if l.Pids > 0 {
		parts = append(parts, fmt.Sprintf("%d processes", l.Pids))
	}
	text := "Limits: " + strings.Join(parts, ", ")
	if len(parts) == 0 {
		text = "Limits: the machine's"
	}
	switch o.Contract {
	case tool.Agent:
		text += "; 300 s a command, unless it is given a timeout"
	case tool.Plain:
		text += "; 30 s a command"
	case tool.Modes:
		text += "; 30 s a command, 900 s in mode slow"
	}
	return text + "."
}

// endText says when the session ends, and what becomes of the work in it.
func (o Options) endText(stateless bool) string {
	kept := ""
	if o.KeepFor > 0 && o.Session.Workspace.Kind != sandbox.WorkspaceBind {
		kept = fmt.Sprintf(" A changed workspace is then kept for the user for %s (`sandboxbash session ls`).", durationText(o.KeepFor))
	}
	idle := durationText(o.Idle)
	switch {
	case o.Attach != "":
		return fmt.Sprintf("The session is the user's own (%s): others may work in it, and it does not end with you.", o.Session.Name)
	case stateless:
		return fmt.Sprintf("Every call names its session: \"new\" the first time, then the id that the result gave. It ends when it was idle for %s.%s", idle, kept)
	case o.Keep:
		return fmt.Sprintf("The session lives on when you disconnect, until it was idle for %s.%s", idle, kept)
	}
	return "The session ends when you disconnect." + kept
}

// durationText is a duration without zeros behind it.
func durationText(d time.Duration) string {
	if d%time.Hour == 0 && d > 0 {
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	text := d.Round(time.Second).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	return text
}
