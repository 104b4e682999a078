package policy

import (
	"slices"
	"strings"
	"sync"
)

// promptNames are the variables whose values the shell runs or expands for a prompt.
var promptNames = set("PROMPT_COMMAND PS0 PS1 PS2 PS4")

// programNames are the variables whose value is a program that other programs run.
var programNames = set(`PAGER MANPAGER GIT_PAGER GH_PAGER SYSTEMD_PAGER AWS_PAGER BAT_PAGER DELTA_PAGER PSQL_PAGER
 EDITOR VISUAL FCEDIT SUDO_EDITOR GIT_EDITOR GIT_SEQUENCE_EDITOR HGEDITOR SVN_EDITOR KUBE_EDITOR PSQL_EDITOR SYSTEMD_EDITOR
 BROWSER GIT_SSH GIT_SSH_COMMAND GIT_ASKPASS SSH_ASKPASS SUDO_ASKPASS GIT_EXTERNAL_DIFF GIT_PROXY_COMMAND RSYNC_RSH CVS_RSH SVN_SSH
 BORG_RSH BORG_PASSCOMMAND RESTIC_PASSWORD_COMMAND PERLDOC_PAGER MAKESHELL CONFIG_SHELL GREP_PAGER MERGE_TOOL TERMINAL`)

// codeNames are the variables that load code, whatever their value, unless it is empty.
var codeNames = set(`LD_PRELOAD LD_AUDIT DYLD_INSERT_LIBRARIES BASH_ENV LESSOPEN LESSCLOSE LESSKEY LESSKEYIN LESSKEY_SYSTEM LESSKEYIN_SYSTEM LESSKEY_CONTENT PYTHONSTARTUP PYTHONHOME PYTHONINSPECT PERL5OPT PERL5DB
 RUBYOPT PERL5LIB PERLLIB RUBYLIB GIT_EXEC_PATH GIT_TEMPLATE_DIR GIT_CONFIG_GLOBAL GIT_CONFIG_SYSTEM GIT_CONFIG_PARAMETERS GIT_CONFIG_COUNT
 SHELLOPTS BASHOPTS TAR_OPTIONS GCONV_PATH LUA_INIT EXECIGNORE PHP_INI_SCAN_DIR PHPRC ANT_OPTS R_PROFILE R_PROFILE_USER R_ENVIRON`)

// optionNames maps the variables that hold options of a program to the options that load
// code.
var optionNames = map[string]string{
	"NODE_OPTIONS":            "--require -r --import --loader --experimental-loader --eval -e --inspect --inspect-brk --openssl-config",
	"JAVA_TOOL_OPTIONS":       "-javaagent -agentlib -agentpath -XX:OnError -XX:OnOutOfMemoryError",
	"_JAVA_OPTIONS":           "-javaagent -agentlib -agentpath -XX:OnError -XX:OnOutOfMemoryError",
	"JDK_JAVA_OPTIONS":        "-javaagent -agentlib -agentpath -XX:OnError -XX:OnOutOfMemoryError",
	"PYTHONWARNINGS":          "error::",
	"LESS":                    "+!",
	"GOFLAGS":                 "-toolexec -exec",
	"MAKEFLAGS":               "--eval SHELL=",
	"RUSTC_WRAPPER":           "/tmp sh bash",
	"CARGO_BUILD_RUSTC":       "/tmp sh bash",
	"npm_config_script_shell": "/",
}

// loaderNames are further variables that choose what is loaded or run. LoadsCode reports
// them; the rules allow a script to set them.
var loaderNames = set(`LD_LIBRARY_PATH DYLD_LIBRARY_PATH DYLD_FRAMEWORK_PATH DYLD_FALLBACK_LIBRARY_PATH LD_DEBUG_OUTPUT LD_PROFILE_OUTPUT
 GIT_SSH GIT_SSH_COMMAND GIT_ASKPASS GIT_EXTERNAL_DIFF GIT_PROXY_COMMAND
 GIT_SEQUENCE_EDITOR SSH_ASKPASS SUDO_ASKPASS RSYNC_RSH CVS_RSH SVN_SSH CONFIG_SHELL MAKESHELL GREP_PAGER IFS`)

// plainOptions are the starts of those options of interpreters that load nothing.
var plainOptions = []string{
	"--max-", "--no-warnings", "--no-deprecation", "--enable-source-maps", "--unhandled-rejections=", "--stack-trace-limit=",
	"-Xmx", "-Xms", "-Xss", "-Dfile.encoding=",
}

// LoadsCode reports whether a variable makes programs load or run what it names: variables
// of the dynamic linker, a shell's start-up file, an interpreter's options, a helper of
// git. If the name is not enough to know, the value decides.
func LoadsCode(name, value string) bool {
	switch {
	case value == "" || value == "/dev/null":
		return false
	case name == "ENV": // many programs use it for the kind of environment, as in ENV=production
		return strings.ContainsAny(value, "/$`~")
	case promptNames[name]:
		return name == "PROMPT_COMMAND" || strings.ContainsAny(value, "$`")
	case optionNames[name] != "" && name != "LESS" && name != "PYTHONWARNINGS":
		for opt := range strings.FieldsSeq(value) {
			plain := func(begin string) bool { return strings.HasPrefix(opt, begin) }
			if !slices.ContainsFunc(plainOptions, plain) {
				return true
			}
		}
		return false
	}
	return codeNames[name] || loaderNames[name] || name == "ZDOTDIR" || strings.HasPrefix(name, "BASH_FUNC_") ||
		strings.HasPrefix(name, "GIT_CONFIG_KEY_") || strings.HasPrefix(name, "GIT_CONFIG_VALUE_")
}

// variable looks at an assignment to a variable, made in any way.
func (w *walker) variable(name string, value arg, at int) {
	reason := name + "=" + quote(value.text)
	name, appends := strings.CutSuffix(name, "+")
	w.evaluates = w.evaluates || integers[name]
	name, _, _ = strings.Cut(name, "[")
	switch {
	case name == "PATH":
		if appends { // to a directory that is there
			value = joinedWith("/", value)
		}
		if odd := oddPath(value); odd != "" {
			w.deny(setEnv+"/path", at, "PATH has "+odd)
		}
	case name == "PROMPT_COMMAND":
		w.later(name, value)
		if value.text != "" {
			w.deny(setEnv+"/variable", at, reason)
		}
	case promptNames[name]:
		w.prompt(name, value, at)
	case programNames[name]:
		if !benignProgram(value) {
			w.deny(setEnv+"/variable", at, reason)
		}
		if value.known() {
			w.hidden(value.text, name, at)
		}
	case codeNames[name], strings.HasPrefix(name, "BASH_FUNC_"), strings.HasPrefix(name, "GIT_CONFIG_KEY_"), strings.HasPrefix(name, "GIT_CONFIG_VALUE_"):
		if value.text != "" && !value.is("/dev/null") {
			w.deny(setEnv+"/variable", at, reason)
		}
	case name == "ENV" || name == "ZDOTDIR":
		// Many programs use ENV for the kind of environment, as in ENV=production.
		if strings.ContainsAny(value.text, "/$`~") {
			w.deny(setEnv+"/variable", at, reason)
		}
	case optionNames[name] != "":
		for opt := range strings.FieldsSeq(optionNames[name]) {
			if strings.Contains(" "+value.text, opt) {
				w.deny(setEnv+"/variable", at, reason)
			}
		}
	}
}

// expands reports whether bash expands anything in a prompt. A dollar before a space or at the
// end is the dollar that many prompts end with.
func expands(text string) bool {
	for i := range len(text) {
		if text[i] == '`' || text[i] == '$' && i+1 < len(text) && strings.IndexByte(" \t\n\\\"'", text[i+1]) < 0 {
			return true
		}
	}
	return false
}

// prompt visits the commands that the shell runs when it writes a prompt.
func (w *walker) prompt(name string, value arg, at int) {
	text := skeleton(value)
	if !expands(text) {
		return
	}
	w.deny(setEnv+"/variable", at, name+"="+quote(value.text))
	w.maybe(func() { w.expandedLater(text, name, value.at) })
}

// hidden looks for denials in the text of a program that another program runs.
func (w *walker) hidden(text, via string, at int) {
	w.silently(func() {
		w.shellText(inner{text: lit(text, at), via: via, kind: opaqueDeferred})
	})
}

// program looks at a program that another program is given to run. It refuses any that is
// not commonly used for that.
func (w *walker) program(how string, value arg, at int) {
	if !benignProgram(value) {
		w.deny(setExec+"/option", at, how+" "+quote(value.text))
	}
	if value.known() {
		w.hidden(value.text, how, at)
	}
}

// benign are the common pagers, editors, remote shells and compressors.
var benign = sync.OnceValue(func() map[string]bool {
	return set(`cat less more most bat batcat delta diff-so-fancy true false : vi vim nvim nano emacs emacsclient ed micro code codium
 subl gedit kate hx helix mate open xdg-open firefox chromium google-chrome w3m lynx elinks ssh meld kdiff3 vimdiff nvimdiff opendiff p4merge bcompare gpg gpg2
 git-lfs git-crypt pinentry ssh-askpass ksshaskpass head tail col gzip bzip2 xz zstd lz4 pigz pbzip2 pixz lzip plzip lzma lzop brotli lrzip compress unpigz gunzip
 zip unzip`)
})

// benignProgram reports whether a value is one of benign, with plain options.
func benignProgram(a arg) bool {
	if !a.known() {
		return false
	}
	text := strings.TrimSpace(a.text)
	if text == "" {
		return true
	}
	if strings.ContainsAny(text, ";|&$`<>(){}\n!") {
		return false
	}
	words := splitWords(text, 0)
	if len(words) == 0 {
		return true
	}
	name := words[0].text
	if strings.Contains(name, "/") && !strings.HasPrefix(name, "/usr/bin/") && !strings.HasPrefix(name, "/bin/") {
		return false
	}
	if !benign()[base(name)] {
		return false
	}
	for _, a := range words[1:] {
		lower := strings.ToLower(a.text)
		if strings.Contains(lower, "command") || base(name) == "vim" && strings.HasPrefix(lower, "-c") || strings.HasPrefix(lower, "+!") || strings.HasPrefix(lower, "-c!") {
			return false
		}
	}
	return true
}

// oddPath returns the element of a PATH in which other users could put programs, or "".
func oddPath(value arg) string {
	if value.text == "" {
		return ""
	}
	start := true // of an element
	for i, p := range value.all() {
		if p.kind != literal {
			start = false // an element that is not known, or a home
			continue
		}
		last := i == len(value.parts)-1 || value.parts == nil
		for text, more := p.text, true; more; {
			var element string
			element, text, more = strings.Cut(text, ":")
			if odd := oddElement(element); start && odd != "" && (element != "" || more || last) {
				return odd
			}
			start = more
		}
	}
	return ""
}

func oddElement(text string) string {
	switch {
	case text == "":
		return "an empty directory, which is the working directory"
	case text[0] == '~': // a home for bash, also between colons and in quotes
		return ""
	case text[0] != '/':
		return "a relative directory: " + quote(text)
	}
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm"} {
		if text == dir || strings.HasPrefix(text, dir+"/") {
			return "a directory that every user may write to: " + quote(text)
		}
	}
	return ""
}
