package policy

import (
	"slices"
	"strings"
)

// grammar says which options a program has.
type grammar struct {
	// short has the letters of its options. A colon follows a letter that takes a
	// value, and a question mark one whose value, if any, is in the same word.
	short string
	// long has the names of its options. = ends a name that takes a value, and ? one
	// whose value, if any, is in the same word.
	long   string
	number bool   // -N with digits is an option, as for nice
	ends   string // options whose value takes their place: what follows them is not read yet
}

// option is an option as it was given.
type option struct {
	name  string // a letter, or the long name in full
	value arg
}

// options is a command line without its name.
type options struct {
	given   []option
	rest    []arg // from the first operand on, or after --
	unknown string
}

// get returns the value of the last option of that name.
func (o options) get(names ...string) (arg, bool) {
	for _, opt := range slices.Backward(o.given) {
		if slices.Contains(names, opt.name) {
			return opt.value, true
		}
	}
	return arg{}, false
}

// parse reads options up to the first operand. An option that the grammar lacks counts as
// one without a value.
func (g grammar) parse(args []arg) options {
	var o options
	for i := 0; i < len(args); {
		a := args[i]
		text := a.lead()
		switch {
		case a.is("--"):
			o.rest = args[i+1:]
			return o
		case strings.HasPrefix(text, "--"):
			i += o.long(g, a, args[i+1:])
		case len(text) > 1 && text[0] == '-':
			i += o.short(g, a, args[i+1:])
		default:
			o.rest = args[i:]
			return o
		}
		if g.ends != "" && slices.Contains(strings.Fields(g.ends), o.given[len(o.given)-1].name) {
			o.rest = args[min(i, len(args)):]
			return o
		}
	}
	return o
}

// permuted reads options and operands in any order, as most GNU programs do.
func (g grammar) permuted(args []arg) options {
	var all options
	for {
		o := g.parse(args)
		all.given = append(all.given, o.given...)
		if all.unknown == "" {
			all.unknown = o.unknown
		}
		if n := len(args) - len(o.rest); n > 0 && args[n-1].is("--") || len(o.rest) == 0 {
			all.rest = append(all.rest, o.rest...)
			return all
		}
		all.rest = append(all.rest, o.rest[0])
		args = o.rest[1:]
	}
}

// long reads one long option and returns how many words it takes.
func (o *options) long(g grammar, a arg, more []arg) int {
	name := a.lead()[2:]
	_, value, attached := a.cut("=")
	name, _, _ = strings.Cut(name, "=")
	full, ok := g.fullName(name)
	switch {
	case !ok:
		if o.unknown == "" {
			o.unknown = a.text
		}
		o.given = append(o.given, option{name, value})
	case attached:
		o.given = append(o.given, option{strings.TrimRight(full, "=?"), value})
	case strings.HasSuffix(full, "=") && len(more) > 0:
		o.given = append(o.given, option{strings.TrimRight(full, "="), more[0]})
		return 2
	default:
		o.given = append(o.given, option{name: strings.TrimRight(full, "=?")})
	}
	return 1
}

// fullName returns the option that a name, or an abbreviation of it, stands for.
func (g grammar) fullName(name string) (string, bool) {
	found := ""
	for full := range strings.FieldsSeq(g.long) {
		bare := strings.TrimRight(full, "=?")
		if bare == name {
			return full, true
		}
		if name != "" && strings.HasPrefix(bare, name) && found == "" {
			found = full
		}
	}
	return found, found != ""
}

// short reads a cluster of short options and returns how many words it takes.
func (o *options) short(g grammar, a arg, more []arg) int {
	letters := a.lead()[1:]
	if g.number && strings.Trim(letters, "0123456789") == "" {
		o.given = append(o.given, option{name: "n", value: a.from(1)})
		return 1
	}
	for i := range len(letters) {
		at := strings.IndexByte(g.short, letters[i])
		if at < 0 || letters[i] == ':' || letters[i] == '?' {
			if o.unknown == "" {
				o.unknown = a.text
			}
			o.given = append(o.given, option{name: letters[i : i+1]})
			continue
		}
		takes := byte(0)
		if at+1 < len(g.short) {
			takes = g.short[at+1]
		}
		name := letters[i : i+1]
		rest := a.from(i + 2)
		attached := i+1 < len(letters) || len(a.parts) > 1
		switch {
		case takes == ':' && attached, takes == '?' && attached:
			o.given = append(o.given, option{name, rest})
			return 1
		case takes == ':' && len(more) > 0:
			o.given = append(o.given, option{name, more[0]})
			return 2
		}
		o.given = append(o.given, option{name: name})
	}
	return 1
}

// wrapper is a program whose words, after its options, are a command that it runs.
type wrapper struct {
	grammar
	operands int    // how many words come before the command
	assigns  bool   // NAME=value words before the command set its environment
	none     string // with one of these options it runs no command
	text     string // options whose value is a script for a shell
	shell    string // with one of these options, it runs a shell if there is no command; * means always
	join     string // if not "", it joins its words to a script, unless one of these options is given
}

// unwrap looks at what a wrapper runs.
func (c call) unwrap(wr *wrapper) {
	o := wr.parse(c.args[1:])
	if o.unknown != "" {
		c.unclear(opaqueOption, c.name+" "+quote(o.unknown))
		c.scan(c.args)
	}
	for _, opt := range o.given {
		if slices.Contains(strings.Fields(wr.none), opt.name) {
			return
		}
		if slices.Contains(strings.Fields(wr.text), opt.name) {
			c.shellText(inner{text: opt.value, via: c.name + " -" + opt.name, kind: opaqueShell, in: c.in})
		}
	}
	rest := o.rest
	if c.name == "chroot" && len(rest) > 0 && !c.ownRoot(rest[0]) {
		c.chroots++
		defer func() { c.chroots-- }()
	}
	for n := wr.operands; n > 0 && len(rest) > 0; n-- {
		rest = rest[1:]
	}
	if wr.assigns {
		rest = c.environment(rest)
	}
	switch {
	case len(rest) == 0:
		_, is := o.get(strings.Fields(wr.shell)...)
		if is || wr.shell == "*" {
			c.reached(c.name, func() { c.argv([]arg{lit("sh", c.at())}, c.in) })
		}
	case wr.join != "" && !given(o, wr.join):
		c.shellText(inner{text: joined(rest), via: c.name, kind: opaqueShell, in: c.in})
	default:
		c.reached(c.name, func() { c.argv(rest, c.in) })
	}
}

// ownRoot reports whether a directory is the root of this system, or reaches it through /proc.
func (w *walker) ownRoot(dir arg) bool {
	return w.resolve(dir) == "/" || strings.Contains(dir.text, "proc")
}

func given(o options, names string) bool {
	_, ok := o.get(strings.Fields(names)...)
	return ok
}

// environment looks at the NAME=value words before a command, and returns the words after
// them.
func (w *walker) environment(args []arg) []arg {
	for len(args) > 0 {
		name, value, ok := args[0].cut("=")
		if !ok || strings.HasPrefix(name, "-") || strings.Contains(name, "/") {
			break
		}
		w.variable(name, value, args[0].at)
		args = args[1:]
	}
	return args
}

// wrappers are the wrappers, by name.
var wrappers = map[string]*wrapper{
	"sudo": {
		grammar: grammar{
			short: "ABbEeHiKkNnPSsVvlhC:D:g:p:R:r:T:t:U:u:",
			long: "askpass background bell close-from= chdir= preserve-env? edit group= set-home help host= login remove-timestamp" +
				" reset-timestamp list no-update non-interactive preserve-groups prompt= chroot= role= stdin shell type= command-timeout= other-user= user= version validate",
		},
		assigns: true, none: "e edit l list v validate V version K", shell: "s shell i login",
	},
	"doas":      {grammar: grammar{short: "LnsC:u:a:"}, none: "L C", shell: "s"},
	"pkexec":    {grammar: grammar{long: "user= disable-internal-agent keep-cwd version help"}, shell: "*"},
	"gosu":      {operands: 1},
	"su-exec":   {operands: 1},
	"setuidgid": {operands: 1},
	"newgrp":    {operands: 1, shell: "*"},
	"env": {
		grammar: grammar{
			short: "i0vu:C:S:a:",
			long: "ignore-environment null unset= chdir= split-string= block-signal? default-signal? ignore-signal?" +
				" list-signal-handling debug argv0=",
			ends: "S split-string",
		},
		assigns: true,
	},
	"timeout": {
		grammar:  grammar{short: "fpvk:s:", long: "foreground preserve-status verbose kill-after= signal="},
		operands: 1,
	},
	"nice":   {grammar: grammar{short: "n:", long: "adjustment=", number: true}},
	"ionice": {grammar: grammar{short: "tc:n:p:P:u:", long: "class= classdata= pid= pgid= uid= ignore"}, none: "p P u pid pgid uid"},
	"nohup":  {},
	"setsid": {grammar: grammar{short: "cfw", long: "ctty fork wait"}},
	"stdbuf": {grammar: grammar{short: "i:o:e:", long: "input= output= error="}},
	"time": {grammar: grammar{
		short: "apvqlo:f:", long: "append portability verbose quiet output= format=",
	}},
	"command":  {grammar: grammar{short: "pvV"}, none: "v V"},
	"builtin":  {},
	"exec":     {grammar: grammar{short: "cla:"}},
	"busybox":  {grammar: grammar{long: "list list-full install help"}, none: "list list-full install help"},
	"toybox":   {grammar: grammar{long: "long help"}, none: "help"},
	"chroot":   {grammar: grammar{long: "userspec= groups= skip-chdir"}, operands: 1, shell: "*"},
	"fakeroot": {grammar: grammar{short: "l:s:i:b:uv", long: "lib= faked= save= load= fd-base= unknown-is-real"}, shell: "*"},
	"unshare": {
		grammar: grammar{
			short: "m?u?i?n?p?U?C?T?frclR:w:S:G:",
			long: "mount? uts? ipc? net? pid? user? cgroup? time? fork map-root-user map-current-user map-auto keep-caps root= wd= setuid=" +
				" setgid= map-user= map-group= map-users= map-groups= propagation= setgroups= mount-proc? mount-binfmt? kill-child? monotonic= boottime=",
		},
		shell: "*",
	},
	"nsenter": {
		grammar: grammar{
			short: "am?u?i?n?p?U?C?T?r?w?FZet:S:G:W:",
			long:  "all target= mount? uts? ipc? net? pid? user? cgroup? time? root? wd? wdns= env no-fork setuid= setgid= preserve-credentials follow-context keep-caps",
		},
		shell: "*",
	},
	"strace": {
		grammar: grammar{
			short: "AcCdDfFhiknNqrtTvVwxyzZYa:b:e:E:I:o:O:p:P:s:S:u:U:X:",
			long: "attach= follow-forks output= trace= env= user= summary summary-only string-limit= columns= absolute-timestamps? relative-timestamps? decode-fds? debug seccomp-bpf" +
				" quiet? successful-only failed-only syscall-times? no-abbrev output-separately interruptible= daemonize?",
		},
	},
	"ltrace":  {grammar: grammar{short: "bcCfhiLrStTVa:A:D:e:F:l:n:o:p:s:u:w:x:", long: "output= library= follow"}},
	"taskset": {grammar: grammar{short: "apc", long: "all-tasks pid cpu-list"}, operands: 1, none: "p pid"},
	"chrt": {
		grammar: grammar{
			short: "abdfimoprRvD:P:T:",
			long:  "all-tasks batch deadline fifo idle max other pid rr reset-on-fork verbose sched-runtime= sched-period= sched-deadline=",
		},
		operands: 1, none: "p pid m max",
	},
	"watch": {
		grammar: grammar{
			short: "bcCd?egprtwxn:q:s:",
			long:  "beep color no-color differences? errexit chgexit equexit= interval= precise no-rerun shotsdir= no-title no-wrap exec",
		},
		join: "x exec",
	},
	"setpriv": {grammar: grammar{
		short: "dhV",
		long: "clear-groups groups= inh-caps= ambient-caps= bounding-set= init-groups keep-groups no-new-privs regid= reuid= rgid= ruid= egid= euid=" +
			" securebits= pdeathsig= selinux-label= apparmor-profile= reset-env list-caps dump nnp",
	}},
	"dbus-run-session": {grammar: grammar{long: "dbus-daemon= config-file= help version"}},
	"systemd-run": {
		grammar: grammar{
			short: "PqtdGrSE:H:M:p:u:",
			long: "scope unit= property= description= slice= slice-inherit expand-environment= remain-after-exit send-sighup service-type= uid= gid= nice=" +
				" working-directory= same-dir setenv= pty pipe quiet user system wait collect shell host= machine= on-active= on-boot= on-startup= on-unit-active=" +
				" on-calendar= timer-property= no-block no-ask-password ignore-failure background=",
		},
		shell: "S shell",
	},
	"systemd-inhibit": {grammar: grammar{long: "what= who= why= mode= list no-pager no-legend"}, none: "list"},
	"xvfb-run": {grammar: grammar{
		short: "alhe:f:n:p:s:w:",
		long:  "auto-display auto-servernum error-file= auth-file= server-num= listen-tcp xauth-protocol= server-args= wait=",
	}},
	"proxychains":  {grammar: grammar{short: "qf:"}},
	"proxychains4": {grammar: grammar{short: "qf:"}},
	"torsocks":     {grammar: grammar{short: "dipqa:P:u:", long: "user= pass= address= port= isolate debug quiet"}},
	"catchsegv":    {},
	"eatmydata":    {},
	"unbuffer":     {grammar: grammar{short: "p"}},
	"rlwrap": {grammar: grammar{
		short: "ca?m?p?nNoIrRAXW?Ub:C:D:e:f:F:g:H:l:M:P:q:s:S:t:T:w:z:Q:O:x",
		long: "always-readline? ansi-colour-aware break-chars= complete-filenames prompt-colour? remember multi-line? no-children no-warnings one-shot" +
			" history-filename= file= filter= logfile= quote-characters= histsize= history-no-dupes= command-name= extra-char-after-completion= case-insensitive",
	}},
	"entr":        {grammar: grammar{short: "acdnprsxz"}, join: "a c d n p r x z"},
	"prlimit":     {grammar: grammar{short: "p:o:", long: "pid= output= noheadings raw verbose"}},
	"numactl":     {grammar: grammar{short: "ai:m:N:C:p:l", long: "all interleave= membind= cpunodebind= physcpubind= preferred= localalloc"}},
	"cgexec":      {grammar: grammar{short: "g:", long: "sticky"}},
	"cpulimit":    {grammar: grammar{short: "bfiklzmqvl:p:e:P:c:", long: "limit= pid= exe= path= background foreground kill lazy"}, none: "p pid e exe P path"},
	"tini":        {grammar: grammar{short: "svwghlp:e:"}},
	"dumb-init":   {grammar: grammar{short: "cvr:", long: "single-child rewrite= verbose"}},
	"caffeinate":  {grammar: grammar{short: "disumt:w:"}},
	"setarch":     {grammar: grammar{short: "BFILRSTXZv3", long: "addr-no-randomize uname-2.6 verbose show"}, operands: 1},
	"linux32":     {grammar: grammar{short: "BFILRSTXZv3"}},
	"linux64":     {grammar: grammar{short: "BFILRSTXZv3"}},
	"dbus-launch": {grammar: grammar{long: "exit-with-session sh-syntax csh-syntax auto-syntax binary-syntax close-stderr autolaunch= config-file="}},
	"ssh-agent":   {grammar: grammar{short: "csdDka:E:t:P:O:"}},
	"hyperfine":   {grammar: grammar{short: "w:m:M:r:s:p:c:S:Nu:i", long: "warmup= min-runs= max-runs= runs= setup= prepare= cleanup= shell= export-json= export-markdown= show-output ignore-failure"}, text: "s setup p prepare c cleanup", join: "-"},
}
