package config

import "time"

// PTY is how commands run on terminals.
type PTY struct {
	Ask        bool
	KillKeys   string
	Unattended bool

	// What a single call says about a terminal that outlives it.
	Size    string        // "COLSxROWS", or "" for the default
	Keys    string        // names, separated by spaces
	Paste   bool          // rather than type
	From    int64         // byte of the text
	Text    string        // to wait for
	Pattern string        // to wait for
	Quiet   time.Duration // to wait for; 0: not
	Input   bool          // wait until it is asked for
	End     bool          // wait for it
}

// ptySettings are about commands on terminals.
func ptySettings() []Setting {
	return []Setting{
		{Key: "pty.ask", Flag: "pty", Kind: Switch, Default: "false", Usage: "run the command on a terminal, which is this one; without one as without --pty"},
		{Key: "pty.kill-keys", Flag: "kill-keys", Default: "esc esc", Holder: "KEYS", Usage: "keys that end a command on this terminal if they follow each other at once; none: no keys do"},
		{Key: "pty.unattended", Flag: "unattended", Kind: Switch, Default: "false", Usage: "set the variables that keep a command on a terminal from paging, editing and asking"},
		{Key: "pty.size", Flag: "size", Default: "80x24", Holder: "COLSxROWS", Usage: "size of a terminal that outlives this call, in characters"},
		{Key: "pty.keys", Flag: "keys", Holder: "KEYS", Usage: "keys to press, behind the text, as in 'enter' or 'ctrl-c up up enter'"},
		{Key: "pty.paste", Flag: "paste", Kind: Switch, Default: "false", Usage: "paste the text as a terminal would, rather than type it"},
		{Key: "pty.from", Flag: "from", Kind: Count, Default: "0", Holder: "N", Usage: "read from byte N of the output on: the next of an earlier read"},
		{Key: "pty.text", Flag: "text", Holder: "TEXT", Usage: "wait until the screen shows TEXT"},
		{Key: "pty.pattern", Flag: "pattern", Holder: "RE", Usage: "wait until the screen matches RE, a regular expression (RE2)"},
		{Key: "pty.quiet-for", Flag: "quiet-for", Kind: Duration, Default: "0s", Holder: "D", Usage: "wait until nothing was shown for so long (0s: do not)"},
		{Key: "pty.input", Flag: "input", Kind: Switch, Default: "false", Usage: "wait until the program waits for input"},
		{Key: "pty.end", Flag: "end", Kind: Switch, Default: "false", Usage: "wait for the program's end, and exit as it did"},
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
