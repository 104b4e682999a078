package cli

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// maxInit is how much a package of ours may allocate before main starts. Every command, and
// each line of an agent's script that calls this program, pays for it.
const maxInit = 88 << 10 // bytes; the words of policy take 81 KiB, a compiled regular expression about 10

// No package of ours compiles regular expressions or fills large tables when the program
// starts. Bytes are counted, and not time, because they are the same in every run.
func TestPackagesAreCheapToInitialise(t *testing.T) {
	t.Parallel()
	self := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	self.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	trace, err := self.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, trace)
	}
	const module = "github.com/sandboxbash/sandboxbash/"
	line := regexp.MustCompile(`(?m)^init (\S+) @\S+ ms, \S+ ms clock, (\d+) bytes, \d+ allocs$`)
	ours := 0
	for _, m := range line.FindAllStringSubmatch(string(trace), -1) {
		if !strings.HasPrefix(m[1], module) || strings.HasSuffix(m[1], "_test") {
			continue
		}
		ours++
		if n, err := strconv.Atoi(m[2]); err != nil || n > maxInit {
			t.Errorf("init of %s allocates %s bytes; want at most %d: make what it needs at its first use, by sync.OnceValue", m[1], m[2], maxInit)
		}
	}
	if ours < 5 {
		t.Errorf("the trace has %d packages of ours; want more:\n%s", ours, trace)
	}
}
