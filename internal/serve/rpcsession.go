package serve

import (
	"context"
	"encoding/base64"
	"unicode/utf8"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// sessionJSON describes a session to a client.
type sessionJSON struct {
	sandbox.Info
	// Held says what the end of the connection does to it: "own" is stopped, "attached"
	// goes on, and "" does not belong to this connection.
	Held    string `json:"held,omitempty"`
	Default bool   `json:"default,omitempty"` // of requests that name none
}

func (p *peer) describe(info sandbox.Info) sessionJSON {
	own, first := p.sessions.list()
	s := sessionJSON{Info: info, Default: info.ID == first}
	if mine, held := own[info.ID]; held {
		s.Held = map[bool]string{true: "own", false: "attached"}[mine]
	}
	return s
}

func (p *peer) described(ctx context.Context, s *Session) (any, error) {
	info, err := s.Lifetime.Info(ctx)
	if err != nil {
		return nil, err
	}
	return p.describe(info), nil
}

func doSessionStart(ctx context.Context, p *peer, shape Shape) (any, error) {
	s, err := p.sessions.start(ctx, p.sessionRequest(shape))
	if err != nil {
		return nil, err
	}
	return p.described(ctx, s)
}

func doSessionAttach(ctx context.Context, p *peer, n named) (any, error) {
	if n.Session == "" {
		return nil, badParams("session is required: the id of one, or the start of an id")
	}
	r := p.sessionRequest(Shape{})
	r.Attach = n.Session
	s, err := p.sessions.start(ctx, r)
	if err != nil {
		return nil, err
	}
	return p.described(ctx, s)
}

type sessionList struct {
	Sessions []sessionJSON `json:"sessions"`
}

func doSessionList(ctx context.Context, p *peer, _ struct{}) (any, error) {
	all, err := p.o.Host.List(ctx)
	if err != nil {
		return nil, err
	}
	list := sessionList{Sessions: []sessionJSON{}}
	for _, info := range all {
		list.Sessions = append(list.Sessions, p.describe(info))
	}
	return list, nil
}

func doSessionInfo(ctx context.Context, p *peer, n named) (any, error) {
	s, err := p.session(ctx, n.Session)
	if err != nil {
		return nil, err
	}
	return p.described(ctx, s)
}

type stopSession struct {
	Session string `json:"session"`
	Release bool   `json:"release"`
}

func doSessionStop(ctx context.Context, p *peer, n stopSession) (any, error) {
	id := n.Session
	if id == "" {
		_, id = p.sessions.list()
	}
	// If the request ends meanwhile the session must not be left half stopped.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	return nil, p.sessions.stop(ctx, id, n.Release)
}

// maxFile bounds how much of a file one request reads or writes: it has to fit into a
// line.
const maxFile = 8 << 20 // bytes

// maxOffset bounds the offset of a part: every reader of JSON can represent it.
const maxOffset = 1<<53 - 1 // bytes

type filePart struct {
	Session string `json:"session"`
	Path    string `json:"path"`
	Offset  int64  `json:"offset"`
	Limit   int64  `json:"limit"`
}

// fileContent is text, or base64 if the content is not UTF-8.
type fileContent struct {
	Content  string `json:"content"`
	Encoding string `json:"encoding"`      // "utf-8" or "base64"
	End      bool   `json:"end,omitempty"` // the file has no more
}

func newContent(data []byte) fileContent {
	if utf8.Valid(data) {
		return fileContent{Content: string(data), Encoding: "utf-8"}
	}
	return fileContent{Content: base64.StdEncoding.EncodeToString(data), Encoding: "base64"}
}

// clampPart brings a part into its bounds. Without a limit it has the largest.
func clampPart(offset, limit int64) (from, most int64, err error) {
	switch {
	case offset < 0 || offset > maxOffset:
		return 0, 0, badParams("offset: it can be 0 to %d", int64(maxOffset))
	case limit < 0 || limit > maxFile:
		return 0, 0, badParams("limit: it can be 1 to %d bytes", maxFile)
	case limit == 0:
		limit = maxFile
	}
	return offset, limit, nil
}

func doFileRead(ctx context.Context, p *peer, f filePart) (any, error) {
	from, most, err := clampPart(f.Offset, f.Limit)
	if err != nil {
		return nil, err
	}
	files, err := p.files(ctx, f.Session, f.Path)
	if err != nil {
		return nil, err
	}
	data, end, err := files.Read(ctx, f.Path, from, most)
	if err != nil {
		return nil, err
	}
	c := newContent(data)
	c.End = end
	return c, nil
}

func (p *peer) files(ctx context.Context, session, path string) (Files, error) {
	if path == "" {
		return nil, badParams("path is required")
	}
	s, err := p.session(ctx, session)
	if err != nil {
		return nil, err
	}
	return part(s.Files, "files")
}

type writeFile struct {
	Session  string `json:"session"`
	Path     string `json:"path"`
	Content  string `json:"content"`
	Encoding string `json:"encoding"`
}

func doFileWrite(ctx context.Context, p *peer, f writeFile) (any, error) {
	data := []byte(f.Content)
	switch f.Encoding {
	case "", "utf-8":
	case "base64":
		var err error
		if data, err = base64.StdEncoding.DecodeString(f.Content); err != nil {
			return nil, badParams("content: it is not base64: %v", err)
		}
	default:
		return nil, badParams("encoding %s: it can be utf-8 or base64", shown(f.Encoding))
	}
	if len(data) > maxFile {
		return nil, badParams("content: %d bytes are more than %d: use session/push", len(data), maxFile)
	}
	files, err := p.files(ctx, f.Session, f.Path)
	if err != nil {
		return nil, err
	}
	return nil, files.Write(ctx, f.Path, data)
}

type listFiles struct {
	Session string `json:"session"`
	Path    string `json:"path"`
}

type fileList struct {
	Entries []FileInfo `json:"entries"`
}

func doFileList(ctx context.Context, p *peer, f listFiles) (any, error) {
	if f.Path == "" {
		f.Path = "."
	}
	files, err := p.files(ctx, f.Session, f.Path)
	if err != nil {
		return nil, err
	}
	all, err := files.List(ctx, f.Path)
	if err != nil {
		return nil, err
	}
	if all == nil {
		all = []FileInfo{}
	}
	return fileList{all}, nil
}

type copyFiles struct {
	Session string `json:"session"`
	From    string `json:"from"`
	To      string `json:"to"`
}

type pushed struct {
	LeftOut []string `json:"leftOut"`
}

func (p *peer) copies(ctx context.Context, c copyFiles) (Copies, error) {
	if c.From == "" || c.To == "" {
		return nil, badParams("from and to are required")
	}
	s, err := p.session(ctx, c.Session)
	if err != nil {
		return nil, err
	}
	return part(s.Copies, "files")
}

func doPush(ctx context.Context, p *peer, c copyFiles) (any, error) {
	to, err := p.copies(ctx, c)
	if err != nil {
		return nil, err
	}
	left, err := to.Push(ctx, c.From, c.To)
	if err != nil {
		return nil, fileError(ctx, err)
	}
	return pushed{LeftOut: listed(left)}, nil
}

type pullFiles struct {
	Session string `json:"session"`
	From    string `json:"from"`
	To      string `json:"to"`
	Force   bool   `json:"force"`
}

func doPull(ctx context.Context, p *peer, c pullFiles) (any, error) {
	from, err := p.copies(ctx, copyFiles{c.Session, c.From, c.To})
	if err != nil {
		return nil, err
	}
	done, err := from.Pull(ctx, c.From, c.To, sandbox.PullOptions{Force: c.Force})
	if err != nil {
		return nil, fileError(ctx, err)
	}
	return pulled{listed(done.LeftOut), listed(done.Deleted), done.Written}, nil
}

type pulled struct {
	LeftOut []string `json:"leftOut"`
	Deleted []string `json:"deleted"` // in the session, still here
	Written int      `json:"written"`
}

// listed is an empty list rather than null.
func listed(names []string) []string {
	if names == nil {
		return []string{}
	}
	return names
}

// fileError has kind "file", unless the type of the error says more.
func fileError(ctx context.Context, err error) error {
	e := answerable(ctx, err)
	if e.Data.Kind == KindNotStarted && e.Data.Cause == "" {
		return failure(KindFile, "%v", err)
	}
	return e
}
