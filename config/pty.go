package config

import "time"

// PTY configures commands on terminals.
type PTY struct {
	Ask        bool
	KillKeys   string
	DetachKeys string
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
func ptySettings(c *Config) []Setting {
	return []Setting{
		{Key: "pty.ask", to: &c.PTY.Ask, PerCall: true, Flag: "pty", Kind: Switch, Default: "false", Usage: "run the command on this terminal; without a terminal, run as if --pty were not given"},
		{Key: "pty.kill-keys", to: &c.PTY.KillKeys, Flag: "kill-keys", Default: "none", Holder: "KEYS", Usage: "keys that end the command when pressed in quick succession, such as 'esc esc' or 'ctrl-]'"},
		{Key: "pty.detach-keys", to: &c.PTY.DetachKeys, Flag: "detach-keys", Default: "ctrl-p,ctrl-q", Holder: "KEYS", Usage: "keys that leave the terminal and let its program go on, pressed in quick succession (none: no keys)"},
		{Key: "pty.unattended", to: &c.PTY.Unattended, Flag: "unattended", Kind: Switch, Default: "false", Usage: "set the variables that keep programs from paging, opening editors and asking questions"},
		{Key: "pty.size", to: &c.PTY.Size, Flag: "size", Default: "80x24", Holder: "COLSxROWS", Usage: "size of the new terminal, in characters"},
		{Key: "pty.keys", to: &c.PTY.Keys, PerCall: true, Flag: "keys", Holder: "KEYS", Usage: "keys to press after the text, such as 'enter' or 'ctrl-c up up enter'"},
		{Key: "pty.paste", to: &c.PTY.Paste, PerCall: true, Flag: "paste", Kind: Switch, Default: "false", Usage: "paste the text, as a terminal does, instead of typing it"},
		{Key: "pty.from", to: &c.PTY.From, PerCall: true, Flag: "from", Kind: Count, Default: "0", Holder: "N", Usage: "start at byte N of the output: the value of next from an earlier read"},
		{Key: "pty.text", to: &c.PTY.Text, PerCall: true, Flag: "text", Holder: "TEXT", Usage: "wait until the screen shows TEXT"},
		{Key: "pty.pattern", to: &c.PTY.Pattern, PerCall: true, Flag: "pattern", Holder: "RE", Usage: "wait until the screen matches RE, a regular expression (RE2)"},
		{Key: "pty.quiet-for", to: &c.PTY.Quiet, PerCall: true, Flag: "quiet-for", Kind: Duration, Default: "0s", Holder: "D", Usage: "wait until nothing has been written for this long (0s: do not)"},
		{Key: "pty.input", to: &c.PTY.Input, PerCall: true, Flag: "input", Kind: Switch, Default: "false", Usage: "wait until the program waits for input"},
		{Key: "pty.end", to: &c.PTY.End, PerCall: true, Flag: "end", Kind: Switch, Default: "false", Usage: "wait for the program to end, and exit with its status"},
	}
}
