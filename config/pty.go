package config

import "time"

// PTY configures commands on terminals.
type PTY struct {
	Ask        bool
	KillKeys   string
	Unattended bool

	// The rest is per call, for a terminal that outlives the call.
	Size    string        // "COLSxROWS", or "" for the default
	Keys    string        // names, separated by spaces
	Paste   bool          // paste the text instead of typing it
	From    int64         // byte offset to read from
	Text    string        // wait until the screen shows it
	Pattern string        // wait until the screen matches it
	Quiet   time.Duration // wait until nothing was shown for this long; 0: do not
	Input   bool          // wait until the program waits for input
	End     bool          // wait for the program's end
}

// ptySettings are about commands on terminals.
func ptySettings() []Setting {
	return []Setting{
		{Key: "pty.ask", PerCall: true, Flag: "pty", Kind: Switch, Default: "false", Usage: "run the command on this terminal; without a terminal, run as if --pty were not given"},
		{Key: "pty.kill-keys", Flag: "kill-keys", Default: "none", Holder: "KEYS", Usage: "keys that end the command when pressed in quick succession, such as 'esc esc' or 'ctrl-]'"},
		{Key: "pty.unattended", Flag: "unattended", Kind: Switch, Default: "false", Usage: "set the variables that keep programs from paging, opening editors and asking questions"},
		{Key: "pty.size", Flag: "size", Default: "80x24", Holder: "COLSxROWS", Usage: "size of the new terminal, in characters"},
		{Key: "pty.keys", PerCall: true, Flag: "keys", Holder: "KEYS", Usage: "keys to press after the text, such as 'enter' or 'ctrl-c up up enter'"},
		{Key: "pty.paste", PerCall: true, Flag: "paste", Kind: Switch, Default: "false", Usage: "paste the text, as a terminal does, instead of typing it"},
		{Key: "pty.from", PerCall: true, Flag: "from", Kind: Count, Default: "0", Holder: "N", Usage: "start at byte N of the output: the value of next from an earlier read"},
		{Key: "pty.text", PerCall: true, Flag: "text", Holder: "TEXT", Usage: "wait until the screen shows TEXT"},
		{Key: "pty.pattern", PerCall: true, Flag: "pattern", Holder: "RE", Usage: "wait until the screen matches RE, a regular expression (RE2)"},
		{Key: "pty.quiet-for", PerCall: true, Flag: "quiet-for", Kind: Duration, Default: "0s", Holder: "D", Usage: "wait until nothing has been written for this long (0s: do not)"},
		{Key: "pty.input", PerCall: true, Flag: "input", Kind: Switch, Default: "false", Usage: "wait until the program waits for input"},
		{Key: "pty.end", PerCall: true, Flag: "end", Kind: Switch, Default: "false", Usage: "wait for the program to end, and exit with its status"},
	}
}

func (r *reader) pty() PTY {
	return PTY{
		Ask: r.on("pty.ask"), KillKeys: r.text("pty.kill-keys"), Unattended: r.on("pty.unattended"),
		Size: r.text("pty.size"), Keys: r.text("pty.keys"), Paste: r.on("pty.paste"), From: r.count("pty.from"),
		Text: r.text("pty.text"), Pattern: r.text("pty.pattern"), Quiet: r.duration("pty.quiet-for"),
		Input: r.on("pty.input"), End: r.on("pty.end"),
	}
}
