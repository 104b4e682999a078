package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Texts are a session's files for the tools of a model: read and edited by lines.
type Texts interface {
	// ReadLines is a *sandbox.Session's.
	ReadLines(ctx context.Context, path string, first, count int64, out io.Writer) (seen int64, end bool, err error)
	// EditFile is a *sandbox.Session's.
	EditFile(ctx context.Context, path string, most int64, change func(sandbox.FileContent) ([]byte, error)) error
	// Shown is a text as a model may see it: with secrets masked, and control characters written out.
	Shown(text string) string
}

// Limits of the tools for files.
const (
	maxReadText  = 48 << 10 // bytes of one result; the rest is read by a further call
	maxReadLines = 2000     // by default
	maxEdited    = 8 << 20  // bytes of a file that is edited or replaced
	maxLineShown = 4 << 10  // bytes of one line
)

const readDescription = `Read a text file of the sandbox, with line numbers. At most 2000 lines or 48 KiB come at once; the last line of the result says where to go on.`

const readSchema = `{
  "type": "object",
  "properties": {
    "path": {"type": "string", "description": "Absolute, or relative to the workspace."},
    "line": {"type": "integer", "minimum": 1, "description": "First line. Default 1."},
    "lines": {"type": "integer", "minimum": 1, "maximum": 2000, "description": "How many lines."}
  },
  "required": ["path"],
  "additionalProperties": false
}`

const writeDescription = `Make a file of the sandbox, or replace all of it. The result says what was there before. Directories are made as needed. To change a part of a file use edit.`

const writeSchema = `{
  "type": "object",
  "properties": {
    "path": {"type": "string", "description": "Absolute, or relative to the workspace."},
    "content": {"type": "string", "description": "The whole content."}
  },
  "required": ["path", "content"],
  "additionalProperties": false
}`

const editDescription = `Replace a piece of text in a file of the sandbox. old must be in the file exactly once, to the space, without line numbers: give enough lines around it. all replaces each.`

const editSchema = `{
  "type": "object",
  "properties": {
    "path": {"type": "string", "description": "Absolute, or relative to the workspace."},
    "old": {"type": "string", "minLength": 1, "description": "The text that is there."},
    "new": {"type": "string", "description": "The text for its place; empty removes it."},
    "all": {"type": "boolean", "description": "Replace it wherever it is."}
  },
  "required": ["path", "old", "new"],
  "additionalProperties": false
}`

// The arguments of the tools.
type (
	readCall struct {
		Path  string `json:"path"`
		Line  int64  `json:"line"`
		Lines int64  `json:"lines"`
	}
	writeCall struct {
		Path    string  `json:"path"`
		Content *string `json:"content"`
	}
	editCall struct {
		Path string  `json:"path"`
		Old  string  `json:"old"`
		New  *string `json:"new"`
		All  bool    `json:"all"`
	}
)

func readTool() mcpTool {
	return mcpTool{name: readName, title: "Read a file of the sandbox", description: readDescription, schema: json.RawMessage(readSchema), does: reads, check: fields[readCall], do: readText}
}

func writeTool() mcpTool {
	return mcpTool{name: writeName, title: "Write a file of the sandbox", description: writeDescription, schema: json.RawMessage(writeSchema), does: writes, check: fields[writeCall], do: writeText}
}

func editTool() mcpTool {
	return mcpTool{name: editName, title: "Edit a file of the sandbox", description: editDescription, schema: json.RawMessage(editSchema), does: edits, check: fields[editCall], do: editText}
}

// errEnough ends the reading of lines that are more than a result holds.
var errEnough = errors.New("more than is shown")

// numbered writes lines with their numbers.
type numbered struct {
	b       strings.Builder
	line    int64
	part    []byte // of a line
	cut     bool   // the rest of the line is not shown
	binary  bool
	shown   func(string) string
	clipped bool // some line was
}

func (n *numbered) Write(p []byte) (int, error) {
	if bytes.IndexByte(p, 0) >= 0 {
		n.binary = true
		return 0, errEnough
	}
	total := len(p)
	for len(p) > 0 {
		at := bytes.IndexByte(p, '\n')
		piece := p
		if at >= 0 {
			piece = p[:at]
		}
		if room := maxLineShown - len(n.part); len(piece) > room {
			n.cut, piece = true, piece[:room]
		}
		n.part = append(n.part, piece...)
		if at < 0 {
			return total, nil
		}
		p = p[at+1:]
		n.flush()
		if n.b.Len() >= maxReadText && len(p) > 0 {
			return total - len(p), errEnough
		}
	}
	return total, nil
}

// flush ends a line.
func (n *numbered) flush() {
	text := strings.TrimSuffix(string(n.part), "\r")
	if n.cut {
		text, n.clipped = strings.ToValidUTF8(text, "")+" [line cut]", true
	}
	n.binary = n.binary || !utf8.ValidString(text)
	fmt.Fprintf(&n.b, "%6d\t%s\n", n.line, n.shown(text))
	n.line++
	n.part, n.cut = n.part[:0], false
}

func readText(c *mcpCall) (toolAnswer, error) {
	a, err := decode[readCall](c.arguments)
	if err != nil {
		return toolAnswer{}, err
	}
	texts, err := part(c.session.Texts, "files")
	switch {
	case err != nil:
		return toolAnswer{}, err
	case a.Path == "":
		return toolAnswer{}, badParams("path is required")
	case a.Line < 0 || a.Lines < 0 || a.Lines > maxReadLines:
		return toolAnswer{}, badParams("line is at least 1, and lines 1 to %d", maxReadLines)
	}
	first, count := max(a.Line, 1), a.Lines
	if count == 0 {
		count = maxReadLines
	}
	n := &numbered{line: first, shown: texts.Shown}
	seen, end, err := texts.ReadLines(c.ctx, a.Path, first, count, n)
	enough := errors.Is(err, errEnough)
	switch {
	case err != nil && !enough:
		return toolAnswer{}, err
	case n.binary:
		return toolAnswer{}, failure(KindFile, "%s is not text: look at it with bash, as in `file` or `xxd`", shown(a.Path))
	}
	open := len(n.part) > 0 || n.cut
	if open {
		n.flush()
	}
	text := n.b.String()
	switch {
	case enough || !end:
		text += fmt.Sprintf("[lines %d to %d; more follow: go on with line %d]", first, n.line-1, n.line)
	case n.line == first && first == 1:
		text = "[the file is empty]"
	case n.line == first:
		text = fmt.Sprintf("[the file has %d lines]", seen)
	case open:
		text += "[no line feed at the end of the file]"
	}
	if n.clipped {
		text += fmt.Sprintf("\n[lines longer than %d bytes are cut: read them with bash]", maxLineShown)
	}
	return toolAnswer{text: strings.TrimSuffix(text, "\n")}, nil
}

func writeText(c *mcpCall) (toolAnswer, error) {
	a, err := decode[writeCall](c.arguments)
	if err != nil {
		return toolAnswer{}, err
	}
	texts, err := part(c.session.Texts, "files")
	switch {
	case err != nil:
		return toolAnswer{}, err
	case a.Path == "" || a.Content == nil:
		return toolAnswer{}, badParams("path and content are required")
	case len(*a.Content) > maxEdited:
		return toolAnswer{}, failure(KindTooLarge, "content has %d bytes, more than %d", len(*a.Content), maxEdited)
	}
	text := ""
	err = texts.EditFile(c.ctx, a.Path, maxEdited, func(was sandbox.FileContent) ([]byte, error) {
		now := []byte(*a.Content)
		switch {
		case !was.Exists:
			text = fmt.Sprintf("Made %s (%s).", was.Path, sizeText(now))
		case bytes.Equal(was.Content, now):
			text = fmt.Sprintf("%s has this content already (%s): nothing was written.", was.Path, sizeText(now))
		default:
			text = fmt.Sprintf("Replaced %s: it had %s, and has %s now.", was.Path, sizeText(was.Content), sizeText(now))
		}
		return now, nil
	})
	return toolAnswer{text: texts.Shown(text)}, editError(err)
}

// sizeText is how much a content is, in words.
func sizeText(content []byte) string {
	lines := bytes.Count(content, []byte{'\n'})
	if len(content) > 0 && content[len(content)-1] != '\n' {
		lines++
	}
	return plural(lines, "line") + ", " + plural(len(content), "byte")
}

func plural(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

func editText(c *mcpCall) (toolAnswer, error) {
	a, err := decode[editCall](c.arguments)
	if err != nil {
		return toolAnswer{}, err
	}
	texts, err := part(c.session.Texts, "files")
	switch {
	case err != nil:
		return toolAnswer{}, err
	case a.Path == "" || a.Old == "" || a.New == nil:
		return toolAnswer{}, badParams("path, old and new are required; old is not empty")
	case a.Old == *a.New:
		return toolAnswer{}, badParams("old and new are the same")
	}
	text := ""
	err = texts.EditFile(c.ctx, a.Path, maxEdited, func(was sandbox.FileContent) ([]byte, error) {
		n := bytes.Count(was.Content, []byte(a.Old))
		switch {
		case !was.Exists:
			return nil, failure(KindFile, "%s: there is no such file: make it with write", was.Path)
		case n == 0:
			return nil, failure(KindFile, "%s: old is not in it. It must be the same to the space and the line feed, and without line numbers: read the lines again", was.Path)
		case n > 1 && !a.All:
			return nil, failure(KindFile, "%s: old is in it %d times, at %s: give more lines around the one, or set all", was.Path, n, linesOf(was.Content, a.Old))
		}
		text = fmt.Sprintf("Edited %s: %s, at %s.", was.Path, plural(n, "place"), linesOf(was.Content, a.Old))
		return bytes.ReplaceAll(was.Content, []byte(a.Old), []byte(*a.New)), nil
	})
	return toolAnswer{text: texts.Shown(text)}, editError(err)
}

// maxLinesNamed bounds the lines that a text names.
const maxLinesNamed = 5

// linesOf names the lines at which a piece of a text begins.
func linesOf(content []byte, piece string) string {
	var names []string
	line, from := 1, 0
	for {
		at := bytes.Index(content[from:], []byte(piece))
		if at < 0 {
			break
		}
		line += bytes.Count(content[from:from+at], []byte{'\n'})
		if len(names) == maxLinesNamed {
			names = append(names, "more")
			break
		}
		names = append(names, fmt.Sprint(line))
		line += strings.Count(piece, "\n")
		from += at + len(piece)
	}
	if len(names) == 1 {
		return "line " + names[0]
	}
	return "lines " + strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// editError words what can go wrong when a file is written.
func editError(err error) error {
	if errors.Is(err, sandbox.ErrFileChanged) {
		return failure(KindFile, "%v: nothing was written; read it again", err)
	}
	return err
}
