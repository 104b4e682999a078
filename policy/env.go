package policy

import (
	"strings"
)

// promptNames are the variables whose value the shell runs, or expands when it
// writes a prompt.
var promptNames = set("PROMPT_COMMAND PS0 PS1 PS2 PS4")

// programNames are the variables whose value is a program that others run.
var programNames = set(`PAGER MANPAGER GIT_PAGER GH_PAGER SYSTEMD_PAGER AWS_PAGER BAT_PAGER DELTA_PAGER PSQL_PAGER
 EDITOR VISUAL FCEDIT SUDO_EDITOR GIT_EDITOR GIT_SEQUENCE_EDITOR HGEDITOR SVN_EDITOR KUBE_EDITOR PSQL_EDITOR SYSTEMD_EDITOR
 BROWSER GIT_SSH GIT_SSH_COMMAND GIT_ASKPASS SSH_ASKPASS SUDO_ASKPASS GIT_EXTERNAL_DIFF GIT_PROXY_COMMAND RSYNC_RSH CVS_RSH SVN_SSH
 BORG_RSH BORG_PASSCOMMAND RESTIC_PASSWORD_COMMAND PERLDOC_PAGER MAKESHELL CONFIG_SHELL GREP_PAGER MERGE_TOOL TERMINAL`)

// codeNames are the variables that load code whatever their value is, unless it
// is empty.
var codeNames = set(`LD_PRELOAD LD_AUDIT DYLD_INSERT_LIBRARIES BASH_ENV LESSOPEN LESSCLOSE PYTHONSTARTUP PYTHONHOME PYTHONINSPECT PERL5OPT PERL5DB
 RUBYOPT PERL5LIB PERLLIB RUBYLIB GIT_EXEC_PATH GIT_TEMPLATE_DIR GIT_CONFIG_GLOBAL GIT_CONFIG_SYSTEM GIT_CONFIG_PARAMETERS GIT_CONFIG_COUNT
 SHELLOPTS BASHOPTS TAR_OPTIONS GCONV_PATH LUA_INIT EXECIGNORE PHP_INI_SCAN_DIR PHPRC ANT_OPTS R_PROFILE R_PROFILE_USER R_ENVIRON`)

// optionNames are the variables with options of a program, and the options that
// load code.
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

// variable looks at a variable that is assigned, in whatever way.
func (w *walker) variable(name string, value arg, at int) {
	reason := name + "=" + quote(value.text)
	name, _, _ = strings.Cut(strings.TrimSuffix(name, "+"), "[")
	switch {
	case name == "PATH":
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
		// ENV is also what many programs call the place they run in.
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

// prompt walks the commands that a prompt runs when it is written.
func (w *walker) prompt(name string, value arg, at int) {
	text := skeleton(value)
	if !strings.ContainsAny(text, "$`") {
		return
	}
	w.deny(setEnv+"/variable", at, name+"="+quote(value.text))
	// It is expanded as a here-document is.
	const end = "END_OF_PROMPT"
	if !strings.Contains(text, end) {
		w.maybe(func() {
			w.shellText(inner{text: lit(": <<"+end+"\n"+text+"\n"+end+"\n", value.at), via: name, kind: opaqueDeferred, here: true})
		})
	}
}

// hidden walks a program that others run, for what is denied in it.
func (w *walker) hidden(text, via string, at int) {
	w.quiet++
	w.shellText(inner{text: lit(text, at), via: via, kind: opaqueDeferred})
	w.quiet--
}

// program refuses a program that is given to another to run, if it is not one of
// those that are meant for that.
func (w *walker) program(how string, value arg, at int) {
	if !benignProgram(value) {
		w.deny(setExec+"/option", at, how+" "+quote(value.text))
	}
	if value.known() {
		w.hidden(value.text, how, at)
	}
}

// benign are the programs that pagers, editors and remote shells commonly are.
var benign = set(`cat less more most bat batcat delta diff-so-fancy true false : vi vim nvim nano emacs emacsclient ed micro code codium
 subl gedit kate hx helix mate open xdg-open firefox chromium google-chrome w3m lynx elinks ssh meld kdiff3 vimdiff nvimdiff opendiff p4merge bcompare gpg gpg2
 git-lfs git-crypt pinentry ssh-askpass ksshaskpass head tail col gzip bzip2 xz zstd lz4 pigz pbzip2 pixz lzip plzip lzma lzop brotli lrzip compress unpigz gunzip
 zip unzip`)

// benignProgram tells whether a value is a known pager, editor or such, with
// plain options.
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
	if !benign[base(name)] {
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

// oddPath says what in a PATH lets anybody's program be run, or "".
func oddPath(value arg) string {
	if value.text == "" {
		return ""
	}
	start := true // of an element
	for i, p := range value.all() {
		if p.kind != literal {
			start = false // an element that is not known, or home
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
	case text[0] == '~': // bash takes it for a home, also between colons and in quotes
		return ""
	case text[0] != '/':
		return "a relative directory: " + quote(text)
	}
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm"} {
		if text == dir || strings.HasPrefix(text, dir+"/") {
			return "a directory that anybody may write to: " + quote(text)
		}
	}
	return ""
}
