package mcpcmd

import (
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// serverName is what the server is called in every client.
const serverName = "sandboxbash"

// A scope says whose clients a configuration is for.
type scope string

const (
	user    scope = "user"    // all projects of this user
	project scope = "project" // this directory, for everyone who works on it
)

// An edit is one value in one file.
type edit struct {
	what  string // server, shell or hook
	file  string
	path  []string
	value any
	// element: the value is one of the array at path.
	element bool
	// toml lines, in the place of a JSON value: those of the table at path, or one line of it.
	lines []string
	line  string
	off   any // of a line: the value
	// keep is how many names of the path stay when the edit is taken back: they were there before.
	keep int
}

// Kinds of edits.
const (
	theServer = "server"
	theShell  = "own shell"
	theHook   = "hook"
)

// A client is a program that runs an agent.
type client struct {
	name, title string
	// edits are what is written for a scope, given how the server is started.
	edits func(p places, s scope, start start) []edit
	// byHand says how the user switches the client's own shell off where no file can.
	byHand func(s scope) string
	// add and remove are the words of the client's own command, for what it has one; nil: it has none.
	add    func(s scope, start start) []string
	remove func(s scope) []string
	// folder is what the client calls the project's directory in its file.
	folder string
}

// start is how a client starts the server.
type start struct {
	command string
	args    []string
}

// places are directories of this machine.
type places struct {
	home, project string
	getenv        func(string) string
}

// config is the user's directory for configurations, as Linux programs have it on all systems but Windows.
func (p places) config() string {
	if dir := p.getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(p.home, ".config")
}

// native is where the system has programs keep their configuration.
func (p places) native() string {
	switch runtime.GOOS {
	case "windows":
		if dir := p.getenv("APPDATA"); dir != "" {
			return dir
		}
		return filepath.Join(p.home, "AppData", "Roaming")
	case "darwin":
		return filepath.Join(p.home, "Library", "Application Support")
	}
	return p.config()
}

// own is a client's own directory, which a variable may name.
func (p places) own(variable, fallback string) string {
	if dir := p.getenv(variable); filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(p.home, fallback)
}

// toolTime is how long a client lets a call of a tool run. Commands have timeouts of their own, which
// the model knows; this one only has to be longer.
const (
	toolSeconds      = 3600
	toolMilliseconds = toolSeconds * 1000
)

// clients are those that are known, in the order of the documentation. Their formats are those of
// docs/clients.md, which names where each is described.
var clients = []client{
	{
		name: "claude", title: "Claude Code",
		edits: func(p places, s scope, st start) []edit {
			file, settings := filepath.Join(p.home, ".claude.json"), filepath.Join(p.own("CLAUDE_CONFIG_DIR", ".claude"), "settings.json")
			if dir := p.getenv("CLAUDE_CONFIG_DIR"); filepath.IsAbs(dir) {
				file = filepath.Join(dir, ".claude.json")
			}
			if s == project {
				file, settings = filepath.Join(p.project, ".mcp.json"), filepath.Join(p.project, ".claude", "settings.json")
			}
			return []edit{
				{what: theServer, file: file, path: []string{"mcpServers", serverName}, value: claudeServer(st)},
				{what: theShell, file: settings, path: []string{"permissions", "deny"}, value: "Bash", element: true},
			}
		},
		add: func(s scope, st start) []string {
			return []string{"mcp", "add-json", "--scope", string(s), serverName, string(compact(claudeServer(st)))}
		},
		remove: func(s scope) []string { return []string{"mcp", "remove", "--scope", string(s), serverName} },
	},
	{
		name: "codex", title: "Codex",
		edits: func(p places, s scope, st start) []edit {
			file := filepath.Join(p.own("CODEX_HOME", ".codex"), "config.toml")
			if s == project {
				file = filepath.Join(p.project, ".codex", "config.toml")
			}
			return []edit{
				{what: theServer, file: file, path: []string{"mcp_servers", serverName}, lines: []string{
					"command = " + quoted(st.command), "args = " + quotedList(st.args), "startup_timeout_sec = 60", "tool_timeout_sec = 3600",
				}},
				{what: theShell, file: file, path: []string{"features", "shell_tool"}, line: "shell_tool", off: false},
			}
		},
	},
	{
		name: "cursor", title: "Cursor", folder: "${workspaceFolder}",
		edits: func(p places, s scope, st start) []edit {
			file := filepath.Join(p.home, ".cursor", "mcp.json")
			if s == project {
				file = filepath.Join(p.project, ".cursor", "mcp.json")
			}
			return []edit{{what: theServer, file: file, path: []string{"mcpServers", serverName}, value: object("type", "stdio", "command", st.command, "args", st.args)}}
		},
		byHand: func(scope) string {
			return "in Cursor, use a custom mode without the tool Terminal; for cursor-agent, add \"Shell(*)\" to permissions.deny of ~/.cursor/cli-config.json"
		},
	},
	{
		name: "zed", title: "Zed",
		edits: func(p places, s scope, st start) []edit {
			dir := filepath.Join(p.config(), "zed")
			if runtime.GOOS == "windows" {
				dir = filepath.Join(p.native(), "Zed")
			}
			if s == project {
				dir = filepath.Join(p.project, ".zed")
			}
			file := filepath.Join(dir, "settings.json")
			all := []edit{{what: theServer, file: file, path: []string{"context_servers", serverName}, value: object("command", st.command, "args", st.args, "env", object(), "timeout", toolSeconds)}}
			if s == user { // Zed reads what is about its agent from the user's settings alone
				all = append(all, edit{what: theShell, file: file, path: []string{"agent", "tool_permissions", "tools", "terminal", "default"}, value: "deny"})
			}
			return all
		},
		byHand: func(s scope) string {
			if s == user {
				return ""
			}
			return "Zed reads that from the user's settings alone: run `sandboxbash mcp install --scope user zed`"
		},
	},
	{
		name: "gemini", title: "Gemini CLI",
		edits: func(p places, s scope, st start) []edit {
			file := filepath.Join(p.home, ".gemini", "settings.json")
			if s == project {
				file = filepath.Join(p.project, ".gemini", "settings.json")
			}
			return []edit{
				{what: theServer, file: file, path: []string{"mcpServers", serverName}, value: object("command", st.command, "args", st.args, "timeout", toolMilliseconds)},
				{what: theShell, file: file, path: []string{"tools", "exclude"}, value: "run_shell_command", element: true},
			}
		},
	},
	{
		name: "opencode", title: "opencode",
		edits: func(p places, s scope, st start) []edit {
			file := firstThere(filepath.Join(p.config(), "opencode", "opencode.jsonc"), filepath.Join(p.config(), "opencode", "opencode.json"))
			if s == project {
				file = firstThere(filepath.Join(p.project, "opencode.jsonc"), filepath.Join(p.project, "opencode.json"))
			}
			return []edit{
				{what: theServer, file: file, path: []string{"mcp", serverName}, value: object("type", "local", "command", append([]string{st.command}, st.args...), "enabled", true, "timeout", toolMilliseconds)},
				{what: theShell, file: file, path: []string{"permission", "bash"}, value: "deny"},
			}
		},
	},
	{
		name: "vscode", title: "VS Code", folder: "${workspaceFolder}",
		edits: func(p places, s scope, st start) []edit {
			file := filepath.Join(p.native(), "Code", "User", "mcp.json")
			if s == project {
				file = filepath.Join(p.project, ".vscode", "mcp.json")
			}
			return []edit{{what: theServer, file: file, path: []string{"servers", serverName}, value: object("type", "stdio", "command", st.command, "args", st.args)}}
		},
		byHand: func(scope) string {
			return "in the chat view, open Configure Tools and deselect runInTerminal"
		},
	},
}

// claudeServer is an entry of mcpServers. MCP_TOOL_TIMEOUT of the client's environment is the default of timeout.
func claudeServer(st start) any {
	return object("type", "stdio", "command", st.command, "args", st.args, "env", object(), "timeout", toolMilliseconds)
}

// hookEdit has Claude Code ask sandboxbash hook.
func hookEdit(p places, s scope, command string, approve bool) edit {
	settings := filepath.Join(p.own("CLAUDE_CONFIG_DIR", ".claude"), "settings.json")
	if s == project {
		settings = filepath.Join(p.project, ".claude", "settings.json")
	}
	words := shellQuoted(command) + " hook claude"
	if approve {
		words += " --approve"
	}
	return edit{what: theHook, file: settings, path: []string{"hooks", "PreToolUse"}, element: true, value: object(
		"matcher", "Bash|Monitor|PowerShell",
		"hooks", []any{object("type", "command", "command", words, "timeout", hookSeconds, "onFailure", "block")},
	)}
}

// hookSeconds is how long the client waits for the hook, which answers within 15 seconds.
const hookSeconds = 30

// named returns the client of a name.
func named(name string) (client, bool) {
	i := slices.IndexFunc(clients, func(c client) bool { return c.name == name })
	if i < 0 {
		return client{}, false
	}
	return clients[i], true
}

func names() []string {
	all := make([]string, len(clients))
	for i, c := range clients {
		all[i] = c.name
	}
	return all
}

// shellQuoted is a word for a shell.
func shellQuoted(word string) string {
	if strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:-") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
