package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// askServer answers on ports 80 and 443 of its network namespace, until its parent ends.
const askServer = `import http.server, sys, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello from " + self.path.encode() + b"\n")
    def log_message(self, *args): pass
servers = [http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler) for port in (80, 443)]
open(sys.argv[1], "w").close()
for s in servers: threading.Thread(target=s.serve_forever).start()
`

// askHosts are names of the server, and none other is known.
const askHosts = "127.0.0.1 localhost yes.test no.test a.many.test b.many.test\n"

// askPlace has a program run where yes.test and the other names are a server that answers at port 80, which is nothing
// of this machine's: in a network and a mount namespace of its own.
const askPlace = `exec unshare -m -n sh -c '
	dir=$0
	ip link set lo up && mount --bind "$dir/hosts" /etc/hosts || exit 1
	setpriv --pdeathsig KILL python3 "$dir/server.py" "$dir/ready" </dev/null >/dev/null 2>&1 &
	while [ ! -e "$dir/ready" ]; do sleep 0.05; done
	exec "$@"' "$@"`

// asked is a person at whose terminal `run --ask-network` runs a script.
func asked(t *testing.T, config, script string, flags ...string) *person {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a network namespace of its own needs root")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"server.py": askServer, "hosts": askHosts} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := slices.Concat([]string{"run", "--allow", "127.0.0.1:80", "--ask-network"}, flags, []string{script})
	if config != "" { // whose rules those of the command line would replace
		args = slices.Delete(args, 1, 3)
	}
	p := newPerson(t, args...)
	program := p.cmd.Args
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Path = sh
	p.cmd.Args = slices.Concat([]string{"sh", "-c", askPlace, "sh", dir, p.cmd.Path}, program[1:])
	p.cmd.Args[5] = filepath.Join(built, "sandboxbash")
	if config != "" {
		p.cmd.Env = append(p.cmd.Env, "SANDBOXBASH_CONFIG="+config)
	}
	return p
}

// wants waits for the next question, which must be about a host.
func (p *person) wants(host string) {
	p.t.Helper()
	p.sees("sandboxbash: the session wants to reach ")
	if line := p.line(); line != host {
		p.t.Fatalf("the question is about %q; want %s", line, host)
	}
	p.sees("rule     " + host)
	p.sees("allow? [o]nce [s]ession [a]lways [e]dit [n]o (default no, no in ")
}

// line waits for the end of the line that is shown, and returns and forgets what stood before it.
func (p *person) line() string {
	p.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if line, _, ok := bytes.Cut(p.screen(), []byte("\r\n")); ok {
			p.sees("\r\n")
			return string(line)
		}
	}
	p.t.Fatalf("the line does not end: %q", p.screen())
	return ""
}

// Each answer does what it says, and each question is put once.
func TestAskAnswers(t *testing.T) {
	t.Parallel()
	p := asked(t, "", `curl -sS http://yes.test/1; curl -sS http://yes.test/2; curl -sS http://no.test/3; curl -sS http://no.test/4; curl -sS http://a.many.test/5; echo over`)
	p.start()
	p.wants("yes.test:80")
	p.types("xq7") // mean nothing
	p.types("o")
	p.sees("allowed until the command ends")
	p.sees("hello from /1")
	p.sees("hello from /2")
	p.wants("no.test:80")
	p.types("n")
	p.sees("no\r\n")
	p.sees("blocked by sandbox policy: no rule allows no.test:80")
	p.sees("blocked by sandbox policy: no rule allows no.test:80") // and no question
	p.wants("a.many.test:80")
	p.types("s")
	p.sees("allowed for this session")
	p.sees("hello from /5")
	p.sees("over")
	p.leaves(0)
}

// The letter y is a yes for once, and the keys that people press without thinking are a no.
func TestAskKeys(t *testing.T) {
	t.Parallel()
	p := asked(t, "", `for h in yes no a.many b.many; do curl -sS http://$h.test/$h; echo; done; echo over`)
	p.start()
	for _, row := range []struct{ host, key, shows string }{
		{"yes", "y", "hello from /yes"},
		{"no", "\r", "no rule allows no.test:80"},
		{"a.many", "\x1b[A", "no rule allows a.many.test:80"}, // an arrow, whose last byte is the letter of always
		{"b.many", "\x04", "no rule allows b.many.test:80"},
	} {
		p.wants(row.host + ".test:80")
		p.types(row.key)
		p.sees(row.shows)
	}
	p.sees("over")
	p.leaves(0)
}

// Always is written to the configuration, as the person has edited it, and holds in the next run.
func TestAskAlwaysEdited(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "config.yaml")
	const before = "# mine\nnetwork:\n  allow:\n    - 127.0.0.1:80 # the server\n"
	if err := os.WriteFile(config, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	script := `curl -sS http://a.many.test/1; curl -sS http://b.many.test/2; echo over`
	p := asked(t, config, script)
	p.start()
	p.wants("a.many.test:80")
	p.types("e")
	p.sees("edit the rule")
	p.types("\x15*.other.test:80\r")
	p.sees("the rule *.other.test:80 is not for what is asked: no rule allows a.many.test:80")
	p.types("\x15*.many test\r")
	p.sees("column ")
	p.types("\x15GET a.many.test:80/other\r")
	p.sees("is not for what is asked")
	p.types("\x15*.many.testt\x7f:80\r")
	p.sees("rule     *.many.test:80")
	p.sees("allow? ")
	p.types("e\x15example.com\x1b") // escape leaves it
	p.sees("rule     *.many.test:80")
	p.sees("allow? ")
	p.types("a")
	p.sees("allowed, also for later sessions: " + config)
	p.sees("hello from /1")
	p.sees("hello from /2") // by the same rule
	p.sees("over")
	p.leaves(0)
	got, err := os.ReadFile(config)
	if want := before + "    - \"*.many.test:80\"\n"; err != nil || string(got) != want {
		t.Errorf("the configuration is %q, %v; want %q", got, err, want)
	}
	p = asked(t, config, script)
	p.start()
	p.sees("hello from /1")
	p.sees("hello from /2")
	p.sees("over")
	p.leaves(0)
}

// No answer in time is a no, and the run goes on.
func TestAskTimeout(t *testing.T) {
	t.Parallel()
	p := asked(t, "", `curl -sS http://yes.test/1; curl -sS http://yes.test/2; echo over`, "--ask-timeout", "2s")
	p.start()
	p.wants("yes.test:80")
	p.sees("no: there was no answer")
	p.sees("blocked by sandbox policy: no rule allows yes.test:80")
	p.sees("blocked by sandbox policy: no rule allows yes.test:80") // without another question
	p.sees("over")
	p.leaves(0)
}

// Ctrl-C at a question is that of the run, and leaves the terminal as it was.
func TestAskInterrupt(t *testing.T) {
	t.Parallel()
	p := asked(t, "", `curl -sS http://yes.test/1; sleep 60`)
	p.start()
	p.wants("yes.test:80")
	p.types("\x03")
	p.sees("no: there was no answer")
	p.leaves(130)
	if shown := p.screen(); bytes.Contains(shown, []byte("hello from")) {
		t.Errorf("it was allowed: %q", shown)
	}
}

// The output of a command waits while a question is open, and none of it is lost.
func TestAskOutputWaits(t *testing.T) {
	t.Parallel()
	p := asked(t, "", `(for i in $(seq 400); do echo "line $i."; sleep 0.01; done) & sleep 0.5; curl -sS http://yes.test/1; wait; echo over`)
	p.start()
	p.sees("line 1.")
	p.wants("yes.test:80")
	before := len(p.screen())
	for deadline := time.Now().Add(30 * time.Second); bytes.Count(p.screen(), []byte("allow?")) < 2; time.Sleep(10 * time.Millisecond) { // it counts down
		if time.Now().After(deadline) {
			t.Fatalf("the question does not count down: %q", p.screen())
		}
	}
	if shown := p.screen(); bytes.Contains(shown, []byte("line ")) {
		t.Errorf("output is in the question (%d bytes before): %q", before, shown)
	}
	p.types("o")
	p.sees("allowed until the command ends")
	p.sees("hello from /1")
	p.sees("over")
	p.leaves(0)
}

// Where the output goes to a pipe the question goes to the terminal, and the pipe gets the output alone. Typed
// input of a script is not an answer.
func TestAskWithPipe(t *testing.T) {
	t.Parallel()
	p := asked(t, "", `cat; curl -sS http://yes.test/1`)
	var out, errs bytes.Buffer
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = strings.NewReader("ooooo"), &out, &errs
	p.cmd.SysProcAttr.Ctty = 3 // none of the three is the terminal
	p.cmd.ExtraFiles = []*os.File{p.tty}
	p.start()
	p.wants("yes.test:80")
	p.types("n")
	p.sees("no\r\n")
	p.leaves(0)
	if got := out.String(); !strings.Contains(got, "blocked by sandbox policy") || strings.Contains(got, "allow?") {
		t.Errorf("the pipe gets %q; want what curl says alone", got)
	}
	if got := errs.String(); strings.Contains(got, "allow?") {
		t.Errorf("the other pipe gets %q; want no question", got)
	}
}
