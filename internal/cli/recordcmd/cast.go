package recordcmd

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandboxbash/sandboxbash/internal/journal"
	"github.com/sandboxbash/sandboxbash/sink"
)

// event is something that a player shows at a time.
type event struct {
	at   time.Duration // since the start of the recording
	code string        // "o": output; "r": another size, as "80x24"; "m": a marker
	data string
}

// cast is a recording as a player shows it.
type cast struct {
	cols, rows int
	began      time.Time
	title      string
	idle       time.Duration // pauses that are longer are shortened; 0: none
	events     []event
}

// newCast makes a recording a terminal's: prompts, commands, output with its times, ends.
func newCast(rec *recording, secrets *sink.Secrets) *cast {
	c := &cast{cols: 80, rows: 24, title: rec.title()}
	shown := slices.DeleteFunc(slices.Clone(rec.items), func(i *item) bool { return !i.isCommand() && i.about() == "" })
	if len(shown) == 0 {
		return c
	}
	c.began = shown[0].Time
	for _, i := range shown {
		if i.Mode == "terminal" && i.Cols > 0 && i.Rows > 0 {
			c.cols, c.rows = max(c.cols, i.Cols), max(c.rows, i.Rows)
		}
	}
	put := func(at time.Time, code, data string) {
		if data != "" {
			c.events = append(c.events, event{max(0, at.Sub(c.began)), code, data})
		}
	}
	for _, i := range shown {
		if !i.isCommand() {
			put(i.Time, "o", "\x1b[2m# "+oneLine(i.about(), secrets)+"\x1b[0m\r\n")
			continue
		}
		put(i.Time, "m", oneLine(i.Command, secrets))
		put(i.Time, "o", "\x1b[1m$ "+strings.ReplaceAll(cleanText(i.Command, secrets), "\n", "\r\n> ")+"\x1b[0m\r\n")
		i.cast(put, secrets)
	}
	slices.SortStableFunc(c.events, func(a, b event) int { return int(a.at.Milliseconds() - b.at.Milliseconds()) })
	return c
}

// cast puts the output and the end of a command.
func (i *item) cast(put func(at time.Time, code, data string), secrets *sink.Secrets) {
	var whole runes
	column := false // the line has not ended
	for _, r := range i.output {
		if r.Kind == journal.Resize {
			put(r.Time, "r", fmt.Sprintf("%dx%d", r.Cols, r.Rows))
			continue
		}
		if r.Skipped > 0 {
			put(r.Time, "o", "\r\n\x1b[33m"+leftOut(r.Skipped)+"\x1b[0m\r\n")
		}
		text := whole.next(secrets.Scrub(string(r.Data)))
		if r.Stream != journal.Terminal {
			text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", "\r\n")
		}
		if text != "" {
			column = !strings.HasSuffix(text, "\n")
		}
		put(r.Time, "o", text)
	}
	end := ""
	if rest := whole.next(""); rest != "" || whole.held() {
		end = whole.rest()
	}
	if column || end != "" {
		end += "\x1b[0m\r\n"
	}
	if i.failed() || i.ending() == nil {
		end += "\x1b[0;31m[" + oneLine(i.outcome(), secrets) + "]\x1b[0m\r\n"
	}
	put(i.last, "o", end)
}

// oneLine is a text that is safe to show, on one line.
func oneLine(text string, secrets *sink.Secrets) string {
	return strings.Join(strings.Fields(cleanText(text, secrets)), " ")
}

// cleanText is a text that is safe to show.
func cleanText(text string, secrets *sink.Secrets) string {
	return strings.TrimRight(safeText([][]byte{[]byte(text)}, false, secrets), "\n")
}

// runes puts together characters that were cut between records.
type runes struct{ part []byte }

// next returns the whole characters so far, with U+FFFD for what is not UTF-8.
func (r *runes) next(text string) string {
	b := append(r.part, text...)
	n := len(b)
	for back := 1; back <= min(utf8.UTFMax-1, len(b)); back++ {
		if c := b[len(b)-back]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-back:]) {
				n = len(b) - back
			}
			break
		}
	}
	r.part = bytes.Clone(b[n:])
	return strings.ToValidUTF8(string(b[:n]), "\uFFFD")
}

func (r *runes) held() bool { return len(r.part) > 0 }

// rest returns what is left of a character that never became whole.
func (r *runes) rest() string {
	text := strings.ToValidUTF8(string(r.part), "\uFFFD")
	r.part = nil
	return text
}

// write writes the recording as asciicast of version 2 or 3.
func (c *cast) write(w io.Writer, version int) error {
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	head := map[string]any{"version": version, "title": c.title}
	if !c.began.IsZero() {
		head["timestamp"] = c.began.Unix()
	}
	if c.idle > 0 {
		head["idle_time_limit"] = c.idle.Seconds()
	}
	if version == 2 {
		head["width"], head["height"] = c.cols, c.rows
		head["env"] = map[string]string{"TERM": "xterm-256color"}
	} else {
		head["term"] = map[string]any{"cols": c.cols, "rows": c.rows, "type": "xterm-256color"}
	}
	if err := enc.Encode(head); err != nil {
		return err
	}
	before := time.Duration(0)
	for _, e := range c.events {
		at := e.at
		if version != 2 { // times are since the event before
			at -= before
			before = e.at
		}
		seconds := json.Number(strconv.FormatFloat(max(0, at.Seconds()), 'f', 6, 64))
		if err := enc.Encode([]any{seconds, e.code, e.data}); err != nil {
			return err
		}
	}
	return out.Flush()
}

// maxCastLine bounds a line of a recording that is read, in bytes.
const maxCastLine = 64 << 20

var errNotCast = errors.New("it is not an asciicast of version 2 or 3")

// readCast reads an asciicast.
func readCast(r io.Reader) (*cast, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxCastLine)
	if !lines.Scan() {
		return nil, errors.Join(errNotCast, lines.Err())
	}
	var head struct {
		Version int
		Width   int
		Height  int
		Term    struct{ Cols, Rows int }
		Title   string
		Idle    float64 `json:"idle_time_limit"`
	}
	if err := json.Unmarshal(lines.Bytes(), &head); err != nil || head.Version != 2 && head.Version != 3 {
		return nil, errNotCast
	}
	c := &cast{cols: head.Width, rows: head.Height, title: head.Title, idle: seconds(head.Idle)}
	if head.Version == 3 {
		c.cols, c.rows = head.Term.Cols, head.Term.Rows
	}
	at := time.Duration(0)
	for n := 2; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 || head.Version == 3 && line[0] == '#' {
			continue
		}
		var when float64
		e := event{}
		if err := json.Unmarshal(line, &[]any{&when, &e.code, &e.data}); err != nil || e.code == "" {
			return nil, fmt.Errorf("line %d: it is not an event", n)
		}
		if head.Version == 3 {
			at += seconds(when)
		} else {
			at = max(at, seconds(when))
		}
		e.at = at
		c.events = append(c.events, e)
	}
	return c, lines.Err()
}

// seconds is a number of seconds as a duration, 0 if it is not one.
func seconds(s float64) time.Duration {
	if math.IsNaN(s) || s <= 0 {
		return 0
	}
	return time.Duration(min(s, 1e9) * float64(time.Second))
}
