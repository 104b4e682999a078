package policy

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// programOptions are the options of a program that run another program or write a file, as
// they are written: --long, which may be abbreviated, -l, or -word.
type programOptions struct {
	runs    string // the value is a program, with words of its own
	scripts string // the value is a script for a shell
	argv    string // the words after it, up to a semicolon, are a command
	writes  string // the value is a file to write
	any     string // it runs some program, whatever the value
}

var programs = map[string]programOptions{
	"rg":      {runs: "--pre --hostname-bin", any: "-z --search-zip"},
	"fd":      {argv: "-x --exec -X --exec-batch"},
	"sort":    {runs: "--compress-program", writes: "-o --output"},
	"base64":  {writes: "-o --output"},
	"cc":      {runs: "-wrapper -fplugin"},
	"go":      {runs: "-exec -toolexec -vettool --exec --toolexec --vettool"},
	"rsync":   {runs: "--rsync-path", writes: "--log-file"},
	"scp":     {runs: "-D"},
	"ssh":     {any: "-F"},
	"curl":    {writes: "-o --output --output-dir -D --dump-header -c --cookie-jar --trace --trace-ascii --stderr"},
	"wget":    {runs: "--use-askpass", writes: "-O --output-document -o --output-file -P --directory-prefix"},
	"aria2c":  {runs: "--on-download-complete --on-download-start --on-download-stop --on-download-error --on-bt-download-complete"},
	"patch":   {writes: "-o --output"},
	"gpg":     {runs: "--photo-viewer --agent-program --dirmngr-program --pinentry-program", writes: "-o --output"},
	"openssl": {writes: "-out"},
	"csplit":  {writes: "-f --prefix"},
	"nodemon": {scripts: "-x --exec"},
	"cpio":    {runs: "--rsh-command", writes: "-F --file -O"},
	"nc":      {scripts: "-e -c --exec --sh-exec --lua-exec"},
	"yt-dlp":  {scripts: "--exec --exec-before-download"},
	"make":    {scripts: "--eval"},
	"npm":     {scripts: "-c --call"},
	"mpv":     {runs: "--script --scripts"},
	"tcpdump": {runs: "-z", writes: "-w"},
	"gdb":     {argv: "--args"},
}

// sameOptions maps programs to others that have the same options.
var sameOptions = map[string]string{
	"fdfind": "fd", "gsort": "sort", "base32": "base64", "basenc": "base64", "gcc": "cc", "g++": "cc", "c++": "cc", "cpp": "cc", "gfortran": "cc", "clang": "cc", "clang++": "cc",
	"sftp": "scp", "gpatch": "patch", "gpg2": "gpg", "ncat": "nc", "netcat": "nc", "youtube-dl": "yt-dlp", "gmake": "make", "npx": "npm", "ripgrep": "rg",
}

// rule looks at the options of a program that run another or write a file.
func (p programOptions) rule(c call) {
	for option := range strings.FieldsSeq(p.runs) {
		eachValue(c.args, option, func(v arg, _ int) {
			if option == "-wrapper" {
				v = lit(strings.ReplaceAll(v.text, ",", " "), v.at)
			}
			c.program(c.name+" "+option, v, c.at())
		})
	}
	for option := range strings.FieldsSeq(p.scripts) {
		eachValue(c.args, option, func(v arg, _ int) {
			c.refuse(setExec+"/option", c.name+" "+option+" "+quote(v.text))
			c.shellText(inner{text: v, via: c.name + " " + option, kind: opaqueShell})
		})
	}
	for option := range strings.FieldsSeq(p.argv) {
		eachValue(c.args, option, func(_ arg, i int) { c.runsEach(option, untilSemicolon(c.args[i:])) })
	}
	for option := range strings.FieldsSeq(p.writes) {
		eachValue(c.args, option, func(v arg, _ int) { c.writes(v, c.name+" "+option) })
	}
	for option := range strings.FieldsSeq(p.any) {
		eachValue(c.args, option, func(arg, int) { c.refuse(setExec+"/option", c.name+" "+option) })
		if len(c.args) > 1 && c.args[len(c.args)-1].is(option) {
			c.refuse(setExec+"/option", c.name+" "+option)
		}
	}
}

// runsEach visits the command that an option runs for each file.
func (c call) runsEach(option string, command []arg) {
	file := arg{text: "{}", parts: []part{{kind: unknown, text: "{}"}}, at: c.at()}
	if !strings.Contains(joined(command).text, "{") {
		command = append(slices.Clip(command), file)
	}
	c.removes(c.name, command)
	c.reached(c.name+" "+option, func() { c.argv(replaced(command, "{}", file), stream{}) })
}

func untilSemicolon(args []arg) []arg {
	for i, a := range args {
		if a.is(";") {
			return args[:i]
		}
	}
	return args
}

// eachValue calls f with each value of an option, and with the index of the word that has
// the value. A letter may be in a cluster with others.
func eachValue(args []arg, option string, f func(value arg, i int)) {
	for i := 1; i < len(args); i++ {
		text := args[i].lead()
		if args[i].is("--") {
			return
		}
		name, value, attached := args[i].cut("=")
		if !attached {
			name = text
		}
		letter := -1
		if len(option) == 2 && len(text) > 1 && text[0] == '-' && text[1] != '-' {
			letter = strings.IndexByte(text, option[1])
		}
		last := letter == len(args[i].text)-1
		switch {
		case attached && (name == option || strings.HasPrefix(option, "--") && abbreviates(name, option, 5)):
			f(value, i)
		case letter == 1 && !last, letter > 1 && !last && strings.IndexByte("/.~", text[min(letter+1, len(text)-1)]) >= 0:
			f(args[i].from(letter+1), i)
		case i+1 < len(args) && (name == option || letter > 0 && last || strings.HasPrefix(option, "--") && !attached && abbreviates(text, option, 5)):
			f(args[i+1], i+1)
		}
	}
}

// shellMarks maps programs to the starts of the lines that they pass to a shell. The lines
// are in their words and in their input.
var shellMarks = map[string][]string{
	"gdb": {"shell ", "!"}, "lldb": {"platform shell ", "shell "}, "expect": {"spawn ", "system ", "exec "},
	"sqlite3": {".shell ", ".system "}, "psql": {`\!`}, "mysql": {`\!`, "system "}, "mariadb": {`\!`, "system "},
	"vim": {"!"}, "vi": {"!"}, "nvim": {"!"}, "ex": {"!"}, "view": {"!"}, "gvim": {"!"},
	"ed": {"!"}, "red": {"!"}, "ftp": {"!"}, "sftp": {"!"}, "lftp": {"!"},
	"socat": {"EXEC:", "SYSTEM:", "exec:", "system:"}, "strace": {"|", "!"},
}

// silentEx matches the words of ex and vim before a command that say how to run it.
var silentEx = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:sil(?:e(?:n(?:t)?)?)?!?|exe(?:c(?:u(?:t(?:e)?)?)?)? ?["']|keepj\w*|noa\w*)[ \t:]*`)
})

// shellMarked looks at the lines that a program passes to a shell.
func (c call) shellMarked() {
	var lines []arg
	for _, a := range c.args[1:] {
		if a.known() {
			lines = append(lines, a)
		}
	}
	if c.in.set {
		if text := c.read(c.in); isKnown(text) {
			for line := range strings.Lines(text.text) {
				lines = append(lines, lit(line, text.at))
			}
		}
	}
	for _, a := range lines {
		text := strings.TrimLeft(a.text, "+: \t")
		if strings.HasPrefix(text, "--") {
			_, text, _ = strings.Cut(text, "=")
		}
		text = strings.TrimPrefix(text, "-o")
		text = silentEx().ReplaceAllString(text, "")
		for _, mark := range shellMarks[c.name] {
			if command, ok := strings.CutPrefix(text, mark); ok {
				c.refuse(setExec+"/option", c.name+" "+quote(a.text))
				c.hidden(command, c.name, c.at())
			}
		}
	}
}

// sg looks at sg GROUP -c text, and sg GROUP text.
func (c call) sg() {
	rest := c.args[1:]
	if len(rest) > 0 && rest[0].is("-") {
		rest = rest[1:]
	}
	if len(rest) < 2 {
		c.reached(c.name, func() { c.argv([]arg{lit("sh", c.at())}, c.in) })
		return
	}
	if rest = rest[1:]; rest[0].is("-c") && len(rest) > 1 {
		rest = rest[1:]
	}
	c.shellText(inner{text: rest[0], via: c.name, kind: opaqueShell, in: c.in})
}

// ip looks at ip netns exec NAME command. The words of ip may be abbreviated.
func (c call) ip() {
	for i := 1; i+1 < len(c.args); i++ {
		object, verb := c.args[i].text, c.args[i+1].text
		if len(object) < 2 || verb == "" || !strings.HasPrefix("netns", object) && !strings.HasPrefix("vrf", object) || !strings.HasPrefix("exec", verb) {
			continue
		}
		rest := c.args[i+2:]
		all := false
		for _, a := range c.args[1:i] {
			all = all || strings.HasPrefix(a.text, "-a")
		}
		if !all && len(rest) > 0 {
			rest = rest[1:]
		}
		c.reached(c.name+" "+object+" exec", func() { c.argv(rest, c.in) })
		return
	}
}

// startStopDaemon looks at start-stop-daemon --start --exec program -- words.
func (c call) startStopDaemon() {
	o := grammar{
		short: "SKTHVovtqbmCwx:p:u:g:n:s:a:N:P:I:k:c:r:d:R:iO:",
		long: "start stop status help version exec= pidfile= ppid= user= name= startas= chuid= group= nicelevel= procsched= iosched= umask= chroot= chdir=" +
			" background make-pidfile remove-pidfile no-close notify-await notify-timeout= retry= signal= test oknodo quiet verbose pid= output=",
	}.parse(c.args[1:])
	if o.unknown != "" {
		c.unclear(opaqueOption, c.name+" "+quote(o.unknown))
	}
	program, ok := o.get("a", "startas")
	if !ok {
		program, ok = o.get("x", "exec")
	}
	if ok && given(o, "S start") {
		c.reached(c.name, func() { c.argv(append([]arg{program}, o.rest...), c.in) })
	}
}

// runVerbs maps package managers to their commands that run the words after them.
var runVerbs = map[string]map[string]bool{
	"npm": set("exec x"), "yarn": set("exec dlx"), "pnpm": set("exec dlx"), "bun": set("x"), "perf": set("stat record trace"),
}

// runVerb looks at npm exec command and the like.
func (c call) runVerb() {
	if len(c.args) < 3 || !runVerbs[c.name][c.args[1].text] {
		return
	}
	rest := c.args[2:]
	for len(rest) > 0 && strings.HasPrefix(rest[0].lead(), "-") && !rest[0].is("--") {
		rest = rest[1:]
	}
	if len(rest) > 0 && rest[0].is("--") {
		rest = rest[1:]
	}
	// The next word may be an option's value or a package, and -- may follow it.
	for i, a := range rest {
		if a.is("--") {
			rest = append(rest[:i:i], rest[i+1:]...)
			break
		}
	}
	c.reached(c.name+" "+c.args[1].text, func() { c.argv(rest, c.in) })
	if c.name == "perf" {
		c.scan(c.args)
	}
}

// crontab looks at the commands in a new crontab.
func (c call) crontab() {
	_, operands := flags(c.args[1:])
	if len(c.args) > 1 && len(operands) == 0 && !c.args[len(c.args)-1].is("-") || len(operands) > 0 && !operands[0].is("-") || !c.in.set {
		return
	}
	text := c.read(c.in)
	if !isKnown(text) {
		c.unclear(opaqueDeferred, c.name+" "+quote(text.text))
		return
	}
	const times = 5 // fields before the command
	for line := range strings.Lines(skeleton(text)) {
		fields := strings.Fields(line)
		first := times
		if strings.HasPrefix(strings.TrimSpace(line), "@") {
			first = 1
		}
		if len(fields) > first && !strings.HasPrefix(fields[0], "#") {
			command := line
			for _, f := range fields[:first] {
				_, command, _ = strings.Cut(command, f)
			}
			c.shellText(inner{text: lit(command, text.at), via: c.name, kind: opaqueDeferred})
		}
	}
}
