package policy

import (
	"strings"
	"testing"
)

// TestScopes holds the walker to its table of what a command sees of those before it. In
// each script, $x is known to be / only where the assignment is seen.
func TestScopes(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, Options{Checks: []string{checkRm}})
	for _, tt := range []struct {
		script string
		seen   bool
	}{
		{"x=/; rm -rf $x", true},
		{"x=/\nrm -rf $x", true},
		{"x=/ && rm -rf $x", true},
		{"x=/ && y=1; rm -rf $x", true},
		{"a && x=/ && rm -rf $x", true},
		{"a && x=/; rm -rf $x", false},
		{"a || x=/; rm -rf $x", false},
		{"a && x=/ || rm -rf $x", false},
		{"a || x=/ && rm -rf $x", false},
		{"{ x=/; }; rm -rf $x", true},
		{"(x=/); rm -rf $x", false},
		{"x=/ & rm -rf $x", false},
		{"x=/ | a; rm -rf $x", false},
		{"y=$(x=/); rm -rf $x", false},
		{"x=/; (rm -rf $x)", true},
		{"x=/; a | rm -rf $x", true},
		{"x=/; y=$(rm -rf $x)", true},
		{"x=/; rm -rf $x &", true},
		{"if a; then x=/; rm -rf $x; fi", true},
		{"if a; then x=/; fi; rm -rf $x", false},
		{"if x=/; then rm -rf $x; fi", true},
		{"if a; then x=/; else rm -rf $x; fi", false},
		{"x=/; if a; then b; else rm -rf $x; fi", true},
		{"case a in b) x=/;; c) rm -rf $x;; esac", false},
		{"while a; do x=/; rm -rf $x; done", true},
		{"while a; do x=/; done; rm -rf $x", false},
		{"for x in a /; do rm -rf $x; done", true},
		{"for x in a /; do b; done; rm -rf $x", false},
		{"for x in a b c d e f g h /; do rm -rf $x; done", false}, // too many words
		{"for x in $y /; do rm -rf $x; done", false},
		{"f() { x=/; }; rm -rf $x", false},
		{"x=/; f() { rm -rf $x; }; f", true},
		{"f() { rm -rf $1; }; f /", true},
		{"f() { rm -rf $1; }; f a", false},
		{"f() { rm -rf \"$@\"; }; f a /", true},
		{"f() { shift; rm -rf $1; }; f a /", false},
		{"set -- a /; rm -rf $2", true},
		{"set -- a /; shift; rm -rf $2", false},
		{"(set -- /); rm -rf $1", false},
		{"bash -c 'rm -rf $1' _ /", true},
		{"bash -c 'rm -rf $0' /", true},
		{"bash -s / <<<'rm -rf $1'", true},
		{"bash -s a <<<'rm -rf $1'", false},
		{"bash -es -- a / <<<'rm -rf $2'", true},
		{"bash -s -e / <<<'rm -rf $1'", true},
		{"bash -s - / <<<'rm -rf $1'", true},
		{"bash -s -c 'rm -rf /' <<<ls", true}, // -c wins
		{"bash -s -c ls <<<'rm -rf /'", false},
		{"echo 'rm -rf $1' | sh /dev/stdin /", true},
		{"echo 'rm -rf $1' | sh /dev/stdin a /", false},
		{"bash <(echo 'rm -rf $1') /", true},
		{"source <(echo 'rm -rf $1') /", true},
		{"source <(echo 'rm -rf $1') a /", false},
		{"source /dev/stdin / <<<'rm -rf $1'", true},
		{"set -- /; source <(echo 'rm -rf $1')", true}, // it sees those of the script
		{"set -- /; source <(echo 'rm -rf $1') a", false},
		{"set -- /; source <(echo ls) a; rm -rf $1", true},
		{"su x -c 'rm -rf $1' _ /", true},
		{"su x -c 'rm -rf $1' / a", false},
		{"su -c 'rm -rf $0' x /", true},
		{"su - x -c 'rm -rf $@' _ a /", true},
		{"x=/; eval 'rm -rf $x'", true},
		{"x=/; bash -c 'rm -rf $x'", false}, // not exported
		{"eval x=/; rm -rf $x", true},
		{"x=/; x=a; rm -rf $x", false}, // assigned twice: nothing is known
		{"x=/; read x; rm -rf $x", false},
		{"x=/; unset x; rm -rf $x", false},
		{"x=/; ((x=1)); rm -rf $x", false},
		{"x=/; export \"$y\"; rm -rf $x", true}, // and the name of the variable is not known
		{"x=/ a; rm -rf $x", false},
		{"x+=/; rm -rf $x", false},
		{"x=" + strings.Repeat("a", maxText+1) + "; y=/; rm -rf $y", true},
		{"x=/" + strings.Repeat("/", maxText) + "; rm -rf $x", false},
		{"cd /; rm -rf .", true},
		{"cd / && rm -rf .", true},
		{"(cd /); rm -rf .", false},
		{"a && cd /; rm -rf .", false},
		{"cd /; cd a; rm -rf ..", true},
		{"cd /x; rm -rf ../../", true},
		{"pushd /; rm -rf ./", false},
		{"alias r='rm -rf /'; r", true},
		{"alias r='rm -rf'; r /", true},
		{"alias r='rm -rf'; r a", false},
	} {
		if d := p.Check(Input{Script: tt.script}); (d.Verdict == Deny) != tt.seen {
			t.Errorf("Check(%.60q) = %s (%s); want denied %v", tt.script, d.Verdict, d.Reason, tt.seen)
		}
	}
}

// TestInputs follows what a command reads, as far as it is known.
func TestInputs(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, Options{Checks: []string{checkRm}})
	for _, tt := range []struct {
		script string
		want   Verdict
	}{
		{"echo 'rm -rf /' | sh", Deny},
		{"echo rm -rf / | cat | sh", Deny},
		{"printf '%s -rf /' rm | sh", Deny},
		{"printf 'rm -rf %d' 1 | sh", Opaque},
		{"echo -e 'rm\\x20-rf /' | sh", Deny},
		{"{ echo ls; echo rm -rf /; } | sh", Deny},
		{"(echo rm -rf /) | sh", Deny},
		{"echo rm -rf / >f | sh", Opaque},
		{"sh <<<'rm -rf /'", Deny},
		{"sh <<E\nrm -rf /\nE", Deny},
		{"sh <<-E\n\trm -rf /\n\tE", Deny},
		{"sh <<'E'\nrm -rf $x/\nE", Allow}, // another path in the end
		{"cat <<E | sh\nrm -rf /\nE", Deny},
		{"sh </dev/null", Allow},
		{"sh <f", Opaque},
		{"f | sh", Opaque},
		{"bash <(echo rm -rf /)", Deny},
		{"bash <(f)", Opaque},
		{"while a; do sh; done <<<'rm -rf /'", Opaque}, // the first round may have read it
		{"{ true; sh; } <<<'rm -rf /'", Deny},
		{"{ a; sh; } <<<'rm -rf /'", Opaque},
		{"echo / | xargs rm -rf", Deny},
		{"echo a | xargs rm -rf", Allow},
		{"printf 'a\\0/' | xargs -0 rm -rf", Opaque},
		{"printf 'ls\\0\\nrm -rf /' | sh", Opaque},
		{"printf 'ls\\x00\\nrm -rf /' | sh", Opaque},
		{"echo -e 'rm -rf \\0057' | sh", Opaque},
		{"echo -e 'rm -rf /\\c; a' | sh", Opaque},
		{"printf %b 'rm -rf \\0057' | sh", Opaque},
		{"printf 'rm -rf \\057\\n' | sh", Deny},
		{"echo 'rm -rf /\\c' | sh", Allow},
		{"echo a / | xargs -n1 rm -rf", Deny},
		{"echo a b c d / | xargs -n 2 rm -rf", Deny},
		{"echo a b c d e | xargs -n 2 rm -rf", Allow},
		{"echo a / | xargs -L1 rm -rf", Deny},
		{"echo a b | xargs -L1 rm -rf", Allow},
		{`echo a / | xargs -n "$x" rm -rf`, Deny},
		{"echo a / | xargs -s 100 rm -rf", Deny},
		{"echo a,/ | xargs -d , rm -rf", Deny},
		{"echo a,/ | xargs rm -rf", Allow},
		{"echo a,/b | xargs -d , rm -rf", Allow},
		{"echo / | xargs -i rm -rf {}", Deny},
		{"echo / | xargs -i rm -rf {}a", Allow},
		{"echo / | xargs --replace=X rm -rf X", Deny},
		{"echo / | xargs --replace=X rm -rf Y", Allow},
		{"echo / | xargs -I '' rm -rf a", Allow},
		{"echo a / | xargs -I X rm -rf X", Allow}, // one name with a space in it
		{"printf 'a\n/\n' | xargs -I X rm -rf X", Deny},
		{"echo rm -rf / | xargs -I X sh -c X", Deny},
		{"echo ls | xargs -I X sh -c X", Allow},
		{"echo ' /' | xargs -I X rm -rf X", Deny}, // blanks before a line are dropped
		{"printf '/' | cat - | xargs rm -rf", Deny},
		{"cat - <<<'rm -rf /' | sh", Deny},
		{"cat f - <<<'rm -rf /' | sh", Opaque},
		{"cat <f | sh", Opaque},
		{"tee <<<'rm -rf /' | sh", Deny},
		{"command echo 'rm -rf /' | sh", Deny},
		{"x=y echo 'rm -rf /' | sh", Opaque},
		{"true | sh", Allow},
		{"printf -- 'rm -rf /' | sh", Deny},
		{"printf '%s -rf /' | sh", Allow}, // an empty name
		{"printf 'rm -rf %s;' a / | sh", Deny},
		{"printf 'rm -rf %s;' a b | sh", Allow},
		{"printf '%s%s' rm ' -rf /' | sh", Opaque},
		{`printf "$x" | sh`, Opaque},
		{"printf -v x 'rm -rf /' | sh", Opaque},
		{"echo -n 'rm -rf /' | sh", Deny},
		{`echo "rm -rf $x" | sh`, Opaque},
		{"echo 'rm -rf /' | sh </dev/stdin", Deny},
		{"echo 'rm -rf /' | sh <&0", Deny},
		{"echo 'rm -rf /' | sh <&3", Opaque},
		{"echo 'rm -rf /' | sh </dev/null", Allow},
		{"echo 'rm -rf /' | sh 3<f", Deny},
		{"echo 'rm -rf /' >&2 | sh", Opaque},
		{"sh < <(echo rm -rf /)", Deny},
		{"sh < <(echo ls)", Allow},
		{"sh <<<'rm -rf /' <<<ls", Allow}, // the last wins
		{"sh <<<ls <<<'rm -rf /'", Deny},
		{"echo ls | sh <<<'rm -rf /'", Deny},
		{"echo 'rm -rf /' | time sh", Deny},
		{"echo 'rm -rf /' | ! sh", Opaque},
		{"echo 'rm -rf /' | if true; then sh; fi", Opaque}, // a condition may read it
		{"echo 'rm -rf /' | if sed q; then sh; fi", Opaque},
		{"echo 'rm -rf /' | { read x; sh; }", Opaque},
		{"echo 'rm -rf /' | { cd a; sh; }", Deny},
		{"echo 'rm -rf /' | { x=$(sed q); sh; }", Opaque},
		{"echo 'rm -rf /' | { f() { sed q; }; sh; }", Deny},
		{"f() { sh; }; echo 'rm -rf /' | f", Deny},
		{"f() { sh; }; echo ls | f", Allow},
		{"ls > >(sh)", Opaque},
		{"echo 'rm -rf /' | sudo -s", Deny},
		{"echo 'rm -rf /' | sudo -l", Allow},
		{"echo 'rm -rf /' | chroot d", Deny},
		{"echo 'rm -rf /' | chroot d ls", Allow},
		{"echo 'rm -rf /' | su x", Deny},
		{"echo 'rm -rf /' | script f", Deny},
		{"echo 'rm -rf /' | sg x", Deny},
		{"echo 'rm -rf /' | at -f f now", Allow},
		{"echo 'rm -rf /' | batch", Deny},
		{"echo 'rm -rf /' | at -l", Allow},
		{"echo '* * * * * rm -rf /' | crontab", Deny},
		{"echo '* * * * * rm -rf /' | crontab -", Deny},
		{"echo '@daily rm -rf /' | crontab -", Deny},
		{"echo '# * * * * rm -rf /' | crontab -", Allow},
		{"echo '* * * * * rm -rf /' | crontab -l", Allow},
		{"echo '* * * * * rm -rf a' | crontab -", Allow},
		{"cat f | crontab -", Opaque},
		{"echo / | xargs -I X rm -rf X", Deny},
		{"echo a | xargs -I X rm -rf X/b", Allow},
		{"f | xargs rm -rf", Opaque},
		{"true | xargs -r rm -rf /", Allow},
		{"true | xargs rm -rf /", Deny},
		{"parallel rm -rf ::: a /", Deny},
		{"parallel rm -rf ::: a b", Allow},
		{"parallel rm -rf ::: a ::: /", Deny},
		{"parallel ::: ls 'rm -rf /'", Deny},
		{"parallel ::: ls 'rm -rf a'", Allow},
		{"echo / | parallel rm -rf", Deny},
		{"echo / | parallel rm -rf {}/a", Allow},
		{"echo 'rm -rf /' | parallel", Deny},
		{"echo ls | parallel", Allow},
		{"parallel -j 4 rm -rf ::: /", Deny},
		{"parallel --jobs 4 --bar rm -rf {} ::: /", Deny},
		{"parallel --odd rm -rf ::: /", Deny},
		{"parallel rm -rf {}/b ::: a", Allow},
		{"find a -exec rm -rf / \\;", Deny},
	} {
		if d := p.Check(Input{Script: tt.script}); d.Verdict != tt.want {
			t.Errorf("Check(%q) = %s by %s (%s); want %s", tt.script, d.Verdict, d.Rule, d.Reason, tt.want)
		}
	}
}

// TestWrappers reads the options of programs that run their words, each in the ways that
// its grammar has.
func TestWrappers(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, Options{Checks: []string{checkRm}})
	const rm = " rm -rf /"
	for _, script := range []string{
		"sudo", "sudo -u x", "sudo -ux", "sudo --user=x", "sudo --user x", "sudo -nu x A=b", "sudo --", "doas -u x", "gosu x", "env", "env -i A=b", "env -u A", "env -",
		"timeout 5", "timeout -s KILL 5", "timeout --signal=KILL -k 1 5", "nice", "nice -n 5", "nice -5", "ionice -c 3", "nohup", "setsid -w", "stdbuf -oL", "time", "time -p", "command", "command --",
		"builtin command", "exec -a x", "busybox", "chroot d", "fakeroot --", "unshare -r", "nsenter -t 1 -m", "strace -f -e open", "taskset 1", "chrt 1", "watch -n 1", "watch -x", "setpriv --reuid=1",
		"systemd-run --user", "xvfb-run -a", "rlwrap", "numactl -N 0", "cpulimit -l 5 --", "setarch x", "linux32", "sudo env nice timeout 5", "flock f", "flock -n f", "runuser -u x --", "coreutils --coreutils-prog=nice",
		"ip netns exec x", "ip net e x", "ip -all netns exec", "npm exec --", "sg x -c ' rm -rf /'; :", "script -c ' rm -rf /'; :", "su -c ' rm -rf /'; :", "su x -c ' rm -rf /'; :", "unknown", "unknown -x",
		"start-stop-daemon --start --exec rm -- -rf /; :", "env -S 'rm -rf /'; :", "env -S 'nice -n 5'", "split --filter=' rm -rf /' f; :", "echo ' rm -rf /' | at now; :", "tmux new ' rm -rf /'; :",
		"hyperfine ' rm -rf /'; :", "xargs -a f true; ", "trap ' rm -rf /' EXIT; :", "coproc", "! ", "find . -exec rm -rf / \\; ; :", "bash -xc ' rm -rf /'; :", "bash -o posix -c ' rm -rf /'; :", "bash --norc -c ' rm -rf /'; :", "busybox sh -c ' rm -rf /'; :",
	} {
		if d := p.Check(Input{Script: script + rm}); d.Verdict != Deny {
			t.Errorf("Check(%q) = %s by %s (%s); want deny", script+rm, d.Verdict, d.Rule, d.Reason)
		}
	}
	for _, script := range []string{
		"sudo -l", "sudo -e", "command -v", "command -V", "chrt -p", "ionice -p 1", "busybox --list", "echo", "printf %s", "git log --grep", "ls -a", "cpulimit -p 1", "start-stop-daemon --stop --exec rm --",
		"systemd-inhibit --list", "strace -o", "sudo -u", "sudo -- echo", "grep -e", "env echo", "xargs -L 1 echo",
	} {
		if d := p.Check(Input{Script: script + rm}); d.Verdict == Deny {
			t.Errorf("Check(%q) = deny (%s); want it to pass: nothing runs rm -rf /", script+rm, d.Reason)
		}
	}
}
