package config

// PTY is how commands run on terminals.
type PTY struct {
	Ask        bool
	KillKeys   string
	Unattended bool
}

// ptySettings are about commands on terminals.
func ptySettings() []Setting {
	return []Setting{
		{Key: "pty.ask", Flag: "pty", Kind: Switch, Default: "false", Usage: "run the command on a terminal, which is this one; without one as without --pty"},
		{Key: "pty.kill-keys", Flag: "kill-keys", Default: "esc esc", Holder: "KEYS", Usage: "keys that end a command on this terminal if they follow each other at once; none: no keys do"},
		{Key: "pty.unattended", Flag: "unattended", Kind: Switch, Default: "false", Usage: "set the variables that keep a command on a terminal from paging, editing and asking"},
	}
}

func (r *reader) pty() PTY {
	return PTY{Ask: r.on("pty.ask"), KillKeys: r.text("pty.kill-keys"), Unattended: r.on("pty.unattended")}
}
