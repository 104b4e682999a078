package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/agent"
	"github.com/sandboxbash/sandboxbash/internal/screen"
	"github.com/sandboxbash/sandboxbash/policy"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// Live says how a session of package sandbox is served.
type Live struct {
	Engine *sandbox.Engine // that the session comes from
	Tool   *agent.Session
	Store  *sink.Store    // nil: no artifacts are kept
	Scrub  *sink.Secrets  // masks what is shown
	Env    []string       // K=V, of commands on terminals
	Output sink.Options   // of commands on terminals
	Policy policy.Checker // of commands on terminals; it does not see what is typed
	Owner  string         // whose jobs are shown; "": those of every owner
}

// NewSession serves a session of package sandbox.
func NewSession(session *sandbox.Session, l Live) *Session {
	s := &live{Live: l, session: session}
	out := &Session{
		ID: session.ID(), Caller: l.Tool, News: l.Tool, Jobs: liveJobs{s}, Files: sessionFiles{session}, Copies: session,
		Terminals: s, Lifetime: s, Network: session, Proposals: session,
	}
	if l.Store != nil {
		out.Artifacts = storedArtifacts{store: l.Store, session: session.ID()}
	}
	return out
}

type live struct {
	Live
	session *sandbox.Session
}

// Info implements Lifetime.
func (s *live) Info(ctx context.Context) (sandbox.Info, error) {
	return s.Engine.Show(ctx, s.session.ID())
}

// Stop implements Lifetime. Calls end with their session; a call that does not end in time
// does not keep the sandbox session.
func (s *live) Stop(ctx context.Context) error {
	return errors.Join(s.closeTool(ctx), s.session.Stop(ctx))
}

// Leave implements Lifetime.
func (s *live) Leave(ctx context.Context) (*sandbox.Info, error) {
	err := s.closeTool(ctx)
	kept, leaveErr := s.session.Leave(ctx)
	return kept, errors.Join(err, leaveErr)
}

// Release implements Lifetime.
func (s *live) Release(ctx context.Context) error {
	err := s.closeTool(ctx)
	s.session.Release()
	return err
}

// toolTime is how long calls may take to end: contract modes gives them 15 s.
const toolTime = 16 * time.Second

func (s *live) closeTool(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, toolTime)
	defer cancel()
	return s.Tool.Close(ctx)
}

// maxTimeout bounds the timeout of a command on a terminal: with a longer one there is none.
const maxTimeout = 1 << 31 // seconds

// inSession is the command as a session runs it, with variables that the request's come after.
func (r TerminalRequest) inSession(env []string) sandbox.Command {
	c := sandbox.Command{Script: r.Command, Dir: r.Cwd, Env: slices.Clone(env)}
	if r.TimeoutSeconds <= maxTimeout {
		c.Timeout = time.Duration(r.TimeoutSeconds * float64(time.Second))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Env)) {
		c.Env = append(c.Env, name+"="+r.Env[name])
	}
	return c
}

// Open implements Terminals.
func (s *live) Open(ctx context.Context, r TerminalRequest) (Terminal, error) {
	c := r.inSession(s.Env)
	c.Output = s.Output
	if s.Policy != nil {
		if err := s.session.Admit(&c, s.Policy); err != nil {
			return nil, err
		}
	}
	t, err := s.session.Terminal(ctx, c, sandbox.TerminalOptions{Size: screen.Size{Cols: r.Cols, Rows: r.Rows}})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// liveJobs are the owner's jobs.
type liveJobs struct{ *live }

// List implements Jobs.
func (s liveJobs) List(ctx context.Context) ([]sandbox.JobInfo, error) {
	all, err := s.session.Jobs(ctx, s.Owner)
	for i := range all {
		all[i] = s.shown(all[i])
	}
	return all, err
}

// Job implements Jobs.
func (s liveJobs) Job(ctx context.Context, id string) (Job, error) {
	j, err := s.session.Job(ctx, s.Owner, id)
	if err != nil {
		return nil, err
	}
	return liveJob{j, s}, nil
}

// Kill implements Jobs.
func (s liveJobs) Kill(ctx context.Context, id string) (sandbox.JobInfo, error) {
	info, err := s.session.KillJob(ctx, s.Owner, id)
	return s.shown(info), err
}

// shown returns a job's description with its secrets masked.
func (s liveJobs) shown(info sandbox.JobInfo) sandbox.JobInfo {
	info.Label = s.Scrub.Scrub(info.Label)
	return info
}

type liveJob struct {
	job *sandbox.Job
	of  liveJobs
}

// Now implements Job.
func (j liveJob) Now(ctx context.Context) (sandbox.JobInfo, error) { return j.show(j.job.Now(ctx)) }

// Wait implements Job.
func (j liveJob) Wait(ctx context.Context) (sandbox.JobInfo, error) { return j.show(j.job.Wait(ctx)) }

func (j liveJob) show(info sandbox.JobInfo, err error) (sandbox.JobInfo, error) {
	return j.of.shown(info), err
}

// Tail implements Job.
func (j liveJob) Tail(ctx context.Context, most int64) (string, error) {
	out, err := j.job.Output(ctx, sandbox.JobOutput{Tail: most}, sink.Options{
		Window: sink.Tail(int(most)), Artifact: sink.Never, Text: sink.Text{Return: sink.RewindReturn, Invisible: sink.ShowInvisible},
	})
	return out.Stdout.Text(), err
}

// storedArtifacts are the artifacts of a session in a store.
type storedArtifacts struct {
	store   *sink.Store
	session string
}

// List implements Artifacts.
func (a storedArtifacts) List(context.Context) ([]ArtifactInfo, error) {
	all, err := a.store.List(a.session)
	if errors.Is(err, sink.ErrNotFound) {
		return nil, nil
	}
	var list []ArtifactInfo
	for _, i := range all {
		list = append(list, ArtifactInfo{ID: i.ID, Bytes: i.Bytes, Complete: i.State == sink.Complete})
	}
	return list, err
}

// Read implements Artifacts.
func (a storedArtifacts) Read(_ context.Context, id string, from, most int64) ([]byte, int64, error) {
	art, err := a.store.Open(a.session, id)
	if err != nil {
		return nil, 0, err
	}
	defer art.Close() //nolint:errcheck // only read
	var b bytes.Buffer
	if err := art.CopyBytes(&b, from, from+most); err != nil {
		return nil, 0, err
	}
	return b.Bytes(), art.Bytes, nil
}

// sessionFiles reads and writes a session's files with its own programs, as its user.
type sessionFiles struct{ session commander }

// commander is a *sandbox.Session.
type commander interface {
	Run(ctx context.Context, c sandbox.Command) (sandbox.Result, error)
}

// Exit codes of the scripts below, and what they mean.
var fileCodes = map[int]string{
	41: "there is no such file", 42: "it is a directory", 43: "it is not a plain file", 44: "it is not a directory", 45: "permission denied",
}

const checkFile = `[ -e "$1" ] || exit 41; [ ! -d "$1" ] || exit 42; [ -f "$1" ] || exit 43; [ -r "$1" ] || exit 45; `

// readScript is asked for one byte more than is wanted, to learn whether there is more.
const readScript = checkFile + `tail -c "+$2" -- "$1" | head -c "$3"`

// writeScript makes a file atomically: a program that reads it meanwhile sees all of it or
// no file. A file that exists keeps its owner, its permissions and its links, so its content is
// replaced in place.
const writeScript = `[ ! -d "$1" ] || exit 42; case $1 in */*) mkdir -p -- "${1%/*}/" || exit;; esac
if [ -e "$1" ] && [ ! -f "$1" ]; then exit 43; fi
if [ -L "$1" ] || [ -e "$1" ]; then cat >"$1"; exit; fi
t=$1.$$.new; cat >"$t" && mv -f -- "$t" "$1" || { s=$?; rm -f -- "$t"; exit $s; }`

// listScript prints the names, each followed by a NUL because a name can have any other
// byte, then an empty name, and then a line of stat for each of them.
const listScript = `[ -e "$1" ] || exit 41; [ -d "$1" ] || exit 44; cd -- "$1" 2>/dev/null || exit 45
shopt -s dotglob nullglob; all=(*); [ ${#all[@]} -gt 0 ] || exit 0
printf '%s\0' "${all[@]}"; printf '\0'
all=("${all[@]/#/./}") # stat takes a plain - for its standard input
for ((i = 0; i < ${#all[@]}; i += 500)); do stat -c '%f %s' -- "${all[@]:i:500}" || exit; done`

// fileTime bounds how long one of the scripts may run.
const fileTime = time.Minute

// maxList bounds the list of a directory, in bytes of names and sizes.
const maxList = 8 << 20

func (f sessionFiles) run(ctx context.Context, script string, most int64, stdin []byte, args ...string) ([]byte, error) {
	for _, a := range args {
		if strings.IndexByte(a, 0) >= 0 {
			return nil, badParams("path: it has a NUL character")
		}
	}
	if strings.HasPrefix(args[0], "-") { // some programs do not know --
		args[0] = "./" + args[0]
	}
	out := &bounded{most: most}
	c := sandbox.Command{
		Script: script, Args: args, Timeout: fileTime,
		Output: sink.Options{Window: sink.Tail(4 << 10), Artifact: sink.Never, LiveStdout: out, Streams: sink.Split},
	}
	if stdin != nil {
		c.Stdin = bytes.NewReader(stdin)
	}
	res, err := f.session.Run(ctx, c)
	switch {
	case err != nil:
		return nil, err
	case out.over:
		return nil, failure(KindTooLarge, "%s: it is larger than %d bytes", shown(args[0]), most)
	case res.Reason != "exited":
		return nil, failure(KindFile, "%s: it took too long, or was cancelled (%s)", shown(args[0]), res.Reason)
	case res.Code != 0:
		text := fileCodes[res.Code]
		if text == "" {
			text = strings.TrimSpace(res.Output.Stderr.Text())
		}
		return nil, failure(KindFile, "%s: %s", shown(args[0]), text)
	}
	return out.kept.Bytes(), nil
}

// bounded keeps what is written to it up to a number of bytes.
type bounded struct {
	kept bytes.Buffer
	most int64
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.over = b.over || int64(b.kept.Len()+len(p)) > b.most; b.over {
		return len(p), nil
	}
	return b.kept.Write(p)
}

// maskRoom is how much longer a text may be with its secrets masked.
const maskRoom = 1 << 20 // bytes

// Read implements Files.
func (f sessionFiles) Read(ctx context.Context, path string, from, most int64) ([]byte, bool, error) {
	data, err := f.run(ctx, readScript, most+maskRoom, nil, path, fmt.Sprint(from+1), fmt.Sprint(most+1))
	if err != nil {
		return nil, false, err
	}
	if int64(len(data)) > most {
		return data[:most], false, nil
	}
	return data, true, nil
}

// Write implements Files.
func (f sessionFiles) Write(ctx context.Context, path string, data []byte) error {
	if data == nil {
		data = []byte{}
	}
	_, err := f.run(ctx, writeScript, 0, data, path)
	return err
}

// List implements Files.
func (f sessionFiles) List(ctx context.Context, path string) ([]FileInfo, error) {
	data, err := f.run(ctx, listScript, maxList, nil, path)
	if err != nil || len(data) == 0 {
		return nil, err
	}
	names, stats, ok := strings.Cut(string(data), "\x00\x00")
	lines := strings.Split(strings.TrimSuffix(stats, "\n"), "\n")
	all := strings.Split(names, "\x00")
	if !ok || len(all) != len(lines) {
		return nil, failure(KindFile, "%s: it changes while it is read", shown(path))
	}
	list := make([]FileInfo, len(all))
	for i, name := range all {
		var mode uint32
		if _, err := fmt.Sscanf(lines[i], "%x %d", &mode, &list[i].Size); err != nil {
			return nil, failure(KindFile, "%s: stat says %s", shown(path), shown(lines[i]))
		}
		list[i].Name, list[i].Type, list[i].Mode = name, fileType(mode), fmt.Sprintf("%04o", mode&0o7777)
	}
	return list, nil
}

// fileType reads the type bits of st_mode, as inode(7) has them.
func fileType(mode uint32) string {
	switch mode & 0o170000 {
	case 0o100000:
		return "file"
	case 0o040000:
		return "directory"
	case 0o120000:
		return "link"
	default:
		return "other"
	}
}
