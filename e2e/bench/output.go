package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// textSize is the size of the file that the output is read from. It fits into the page
// cache, on this machine and in the session.
const textSize = 64 << 20 // bytes

// textPath is the path of that file in a session.
const textPath = "/workspace/bench.log"

// buildLog returns a text like the output of a build: words, paths and numbers in lines of 20
// to 200 bytes.
func buildLog(n int) []byte {
	random := rand.New(rand.NewPCG(3, 4))
	words := []string{
		"compiling", "src/main.rs", "ok", "github.com/example/project/internal/server", "0.123s", "warning:",
		"unused", "variable", "=>", "12:34:56.789", "INFO", "request", "id=4711", "status=200", "the", "of", "and",
		"node_modules/left-pad/index.js", "[100/2000]", "Linking", "build/objects/CMakeFiles/app.dir/main.cc.o",
	}
	var b bytes.Buffer
	for b.Len() < n {
		for range 3 + random.IntN(9) {
			b.WriteString(words[random.IntN(len(words))])
			b.WriteByte(' ')
		}
		b.WriteByte('\n')
	}
	return b.Bytes()[:n]
}

// twentySecrets are tokens of usual lengths that the text does not hold.
func twentySecrets() (*sink.Secrets, error) {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	random := rand.New(rand.NewPCG(1, 2))
	var list []sink.Secret
	for i, n := range []int{8, 12, 20, 20, 24, 32, 32, 36, 36, 40, 40, 40, 40, 40, 48, 51, 56, 64, 100, 200} {
		value := make([]byte, n)
		for j := range value {
			value[j] = alphabet[random.IntN(len(alphabet))]
		}
		list = append(list, sink.Secret{Name: fmt.Sprintf("TOKEN_%d", i), Value: string(value)})
	}
	secrets, warnings, err := sink.NewSecrets(list)
	if err == nil && len(warnings) > 0 {
		err = fmt.Errorf("secrets: %v", warnings)
	}
	return secrets, err
}

// torrent measures much output, which the same command writes everywhere.
type torrent struct {
	lab   *lab
	dir   string // on this machine; holds the text, the artifacts and tee's file
	store *sink.Store
	grown map[string]int64 // bytes; by contender, the largest growth of this process
}

// cat returns the command that writes the output, from the text at path.
func (t *torrent) cat(path string) string {
	return "cat" + strings.Repeat(" "+path, int(t.lab.sizes.bytes/textSize))
}

// output compares the output of a command with that of a plain exec. The exec runs in the
// session's container, so it has the same limits and reads the same file.
func output(ctx context.Context, l *lab) (rows []row, err error) {
	dir, err := os.MkdirTemp("", "sandboxbash-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	t := &torrent{lab: l, dir: dir, grown: map[string]int64{}}
	if err := os.WriteFile(t.localText(), buildLog(textSize), 0o600); err != nil {
		return nil, err
	}
	secrets, err := twentySecrets()
	if err != nil {
		return nil, err
	}
	if t.store, err = sink.NewStore(filepath.Join(dir, "artifacts"), sink.StoreOptions{}); err != nil {
		return nil, err
	}
	err = l.with(ctx, sandbox.Options{}, func(s *sandbox.Session) error {
		return l.with(ctx, sandbox.Options{Secrets: secrets, Artifacts: t.store}, func(kept *sandbox.Session) error {
			rows, err = t.compare(ctx, s, kept)
			return err
		})
	})
	return rows, err
}

// compare measures a session that only shows output, and one that also scrubs and keeps it.
func (t *torrent) compare(ctx context.Context, shown, kept *sandbox.Session) ([]row, error) {
	for _, s := range []*sandbox.Session{shown, kept} {
		if err := t.bring(ctx, s); err != nil {
			return nil, err
		}
	}
	got, err := interleave(ctx, t.lab.sizes.outputs,
		contender{name: "raw", take: timed(t.raw(shown)), settle: teardown},
		contender{name: "shown", take: t.watched("shown", t.through(shown, sink.Options{})), settle: teardown},
		contender{name: "kept", take: t.watched("kept", t.through(kept, sink.Options{Artifact: sink.Always})), settle: teardown},
		contender{name: "tee", take: timed(t.tee), settle: teardown},
	)
	raw, tee, inWindow, all := got["raw"].median(), got["tee"].median(), got["shown"].median(), got["kept"].median()
	amount := work{float64(t.lab.sizes.bytes) / 1e6, "MB"}
	const few = 32 << 20
	memory := func(what, name string) row {
		return bounded(what, mebibytes(t.grown[name]), float64(t.grown[name]), few, "< 32 MiB")
	}
	enough := goal{sense: atLeast, limit: 0.8}
	return []row{
		rate("text and window", amount, inWindow, raw, "raw exec stream", enough),
		rate("20 secrets, text, window and artifact", amount, all, raw, "raw exec stream", enough),
		rate("20 secrets, text, window and artifact", amount, all, tee, "local `cat … \\| tee FILE`", goal{}),
		memory("growth of our resident memory, text and window", "shown"),
		memory("growth of our resident memory, all of it", "kept"),
	}, err
}

func (t *torrent) localText() string { return filepath.Join(t.dir, "text") }

// bring copies the text into a session.
func (t *torrent) bring(ctx context.Context, s *sandbox.Session) error {
	f, err := os.Open(t.localText())
	if err != nil {
		return err
	}
	defer f.Close()
	res, err := s.Run(ctx, sandbox.Command{Script: "cat > " + textPath, Stdin: f, Timeout: time.Minute})
	if err == nil && res.Code != 0 {
		err = fmt.Errorf("copy the text into the session: %s", res.Output.Stderr.Text())
	}
	return err
}

// raw reads the output of an exec in the session's container.
func (t *torrent) raw(s *sandbox.Session) func(context.Context) error {
	user := s.Info().User
	return func(ctx context.Context) error {
		var n counter
		err := t.lab.rawExec(ctx, s.Info().Container, container.ExecOptions{
			User: fmt.Sprintf("%d:%d", user.UID, user.GID), Cmd: []string{"bash", "-c", t.cat(textPath)},
		}, &n)
		if err != nil {
			return err
		}
		return t.whole(int64(n))
	}
}

// through reads the output of a command in a session.
func (t *torrent) through(s *sandbox.Session, o sink.Options) func(context.Context) error {
	return func(ctx context.Context) error {
		res, err := s.Run(ctx, sandbox.Command{Script: t.cat(textPath), Timeout: 10 * time.Minute, Output: o})
		if err != nil {
			return err
		}
		if a := res.Output.Artifact; a.ID != "" {
			if !a.Complete {
				return fmt.Errorf("artifact %s is incomplete: %s", a.ID, a.Cause)
			}
			if err := t.store.Remove(s.ID(), a.ID); err != nil {
				return err
			}
		}
		return t.whole(res.Stdout)
	}
}

// tee does locally what a user without a sandbox would.
func (t *torrent) tee(ctx context.Context) error {
	file := filepath.Join(t.dir, "tee")
	defer os.Remove(file)
	return exec.CommandContext(ctx, "bash", "-c", t.cat(t.localText())+" | tee "+file+" > /dev/null").Run()
}

// watched is like timed, and also records how much the resident memory has grown.
func (t *torrent) watched(name string, do func(context.Context) error) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		debug.FreeOSMemory()
		// "5" resets the peak: proc_pid_clear_refs(5).
		if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
			return 0, err
		}
		before, err := memory(os.Getpid(), "VmRSS")
		if err != nil {
			return 0, err
		}
		d, err := timed(do)(ctx)
		if err != nil {
			return d, err
		}
		peak, err := memory(os.Getpid(), "VmHWM")
		t.grown[name] = max(t.grown[name], peak-before)
		return d, err
	}
}

// whole checks that all n bytes of the output have arrived.
func (t *torrent) whole(n int64) error {
	if n != t.lab.sizes.bytes {
		return fmt.Errorf("%d bytes of output; want %d", n, t.lab.sizes.bytes)
	}
	return nil
}

// counter counts what is written.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
