package scrub

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// passed is what a scrubber gives in one call.
type passed struct {
	text string
	from Origin
}

// recorder returns a scrubber and what it has passed on so far.
func recorder(s *Secrets) (*Scrubber, *[]passed) {
	var all []passed
	return New(s, func(p []byte, from Origin) { all = append(all, passed{string(p), from}) }), &all
}

func textOf(all []passed) string {
	var b strings.Builder
	for _, p := range all {
		b.WriteString(p.text)
	}
	return b.String()
}

// A secret is masked wherever it is cut: into two writes at each position, into three at
// each pair of positions, and into single bytes.
func TestScrubSplit(t *testing.T) {
	t.Parallel()
	const value = "hunter2/hunter2+x"
	secrets := mustSecrets(t, Secret{"A", value}, Secret{"B", "two-lines-1\ntwo-lines-2"})
	dump := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("~", 40) + value + strings.Repeat("~", 20)))
	for _, tt := range []struct{ name, secret, want string }{
		{"raw", value, "[REDACTED:A]"},
		{"base64", base64.RawStdEncoding.EncodeToString([]byte(value)), "[REDACTED:A]"},
		{"hex", hex.EncodeToString([]byte(value)), "[REDACTED:A]"},
		{"URL", url.QueryEscape(value), "[REDACTED:A]"},
		{"JSON with escaped slashes", strings.ReplaceAll(value, "/", `\/`), "[REDACTED:A]"},
		{"several lines", "two-lines-1\ntwo-lines-2", "[REDACTED:B]"},
		{"one of several lines", "two-lines-2", "[REDACTED:B]"},
		{"twice", value + value, "[REDACTED:A][REDACTED:A]"},
		{"in a dump", "\n" + wrapLines(dump, 60, "\n"), ""},
		{"in a dump with CRLF", "\n" + wrapLines(dump, 60, "\r\n"), ""},
	} {
		in := "a " + tt.secret + " z"
		want := secrets.Scrub(in)
		if tt.want != "" && want != "a "+tt.want+" z" || strings.Count(want, "[REDACTED:") == 0 {
			t.Errorf("%s: Scrub(%q) = %q; want %q", tt.name, in, want, tt.want)
		}
		check := func(cuts ...int) {
			t.Helper()
			sc, all := recorder(secrets)
			at := 0
			for _, cut := range append(cuts, len(in)) {
				sc.Write([]byte(in[at:cut]), Changed)
				at = cut
			}
			sc.Flush()
			if got := textOf(*all); got != want {
				t.Fatalf("%s: cut at %v it is %q; want %q", tt.name, cuts, got, want)
			}
		}
		for i := range len(in) {
			check(i)
			for j := i; j < len(in); j++ {
				check(i, j)
			}
		}
		if got := scrubbed(secrets, in, 1); got != want {
			t.Errorf("%s: byte by byte it is %q; want %q", tt.name, got, want)
		}
	}
}

// What programs make of a secret is masked. The secrets have every character that an
// encoding treats in its own way.
func TestScrubEncodings(t *testing.T) {
	t.Parallel()
	jsonOf := func(escape bool) func(v string) string {
		return func(v string) string {
			var b strings.Builder
			enc := json.NewEncoder(&b)
			enc.SetEscapeHTML(escape)
			if err := enc.Encode(v); err != nil {
				t.Fatal(err)
			}
			return strings.TrimSpace(b.String())
		}
	}
	for name, encode := range map[string]func(v string) string{
		"raw":                  func(v string) string { return v },
		"hex":                  func(v string) string { return hex.EncodeToString([]byte(v)) },
		"HEX":                  func(v string) string { return strings.ToUpper(hex.EncodeToString([]byte(v))) },
		"base64":               func(v string) string { return base64.StdEncoding.EncodeToString([]byte(v)) },
		"base64 for URLs":      func(v string) string { return base64.URLEncoding.EncodeToString([]byte(v)) },
		"base64, not padded":   func(v string) string { return base64.RawStdEncoding.EncodeToString([]byte(v)) },
		"a form's value":       url.QueryEscape,
		"a path's part":        url.PathEscape,
		"in lower case":        func(v string) string { return lowerPercent(url.QueryEscape(v)) },
		"JSON":                 jsonOf(false),
		"JSON for HTML":        jsonOf(true),
		"JSON in JSON":         func(v string) string { return jsonOf(false)(jsonOf(false)(v)) },
		"Go":                   strconv.Quote,
		"Go in ASCII":          strconv.QuoteToASCII,
		"HTML":                 html.EscapeString,
		"single quotes":        func(v string) string { return "'" + strings.ReplaceAll(v, "'", `'\''`) + "'" },
		"single quotes, other": func(v string) string { return "'" + strings.ReplaceAll(v, "'", `'"'"'`) + "'" },
	} {
		for _, value := range []string{"plainsecret", `a b&c=d/e?f+g%h`, `quote"back\slash'tick` + "`", "<tag>&amp;", "ümläut-漢字-👍", "tab\tand\x01control", "dollar$(x)${y}!"} {
			secrets := mustSecrets(t, Secret{"S", value})
			for _, around := range []string{"%s", "x=%s&y", `{"k":"%s"}`, "\n%s\n", "[REDACTED:%s]"} {
				in := fmt.Sprintf(around, encode(value))
				got := secrets.Scrub(in)
				if strings.Count(got, "[REDACTED:S]") != 1 || strings.Contains(got, encode(value)) {
					t.Errorf("%s: Scrub(%q) = %q; want one mask", name, in, got)
				}
			}
		}
	}
}

// In base64 a secret has three forms, by the bytes before it, and each of them has every
// length that a group of three leaves.
func TestScrubAlignments(t *testing.T) {
	t.Parallel()
	for length := MinSecret; length < MinSecret+7; length++ {
		value := "\xfb\xff?>hunter2hunter2"[:length] // has + and / in base64, - and _ for URLs
		secrets := mustSecrets(t, Secret{"S", value})
		for before := range 7 {
			for after := range 4 {
				text := strings.Repeat("u:", 4)[:before] + value + strings.Repeat("@h", 2)[:after]
				for name, enc := range map[string]*base64.Encoding{"standard": base64.StdEncoding, "URL": base64.URLEncoding, "raw": base64.RawStdEncoding, "raw URL": base64.RawURLEncoding} {
					whole := enc.EncodeToString([]byte(text))
					core := whole[(8*before+5)/6 : 8*(before+length)/6]
					got := secrets.Scrub(whole)
					if !strings.Contains(got, "[REDACTED:S]") || strings.Contains(got, core) {
						t.Errorf("%s, %d bytes before and %d behind %d: Scrub(%s) = %s; want %s masked", name, before, after, length, whole, got, core)
					}
					// What is not the secret's is still there, but for shared characters.
					if head := whole[:8*before/6]; !strings.HasPrefix(got, head) {
						t.Errorf("%s: Scrub(%s) = %s; want it to begin with %s", name, whole, got, head)
					}
				}
			}
		}
	}
}

// Each occurrence of a secret is masked, whichever secrets share its bytes.
func TestScrubOverlaps(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		secrets []Secret
		in      string
		want    string
		masked  int64
	}{
		{"one within another", []Secret{{"IN", "inner-secret"}, {"OUT", "an-inner-secret-out"}}, "an-inner-secret-out", "[REDACTED:OUT]", 1},
		{"the inner one alone", []Secret{{"IN", "inner-secret"}, {"OUT", "an-inner-secret-out"}}, "an-inner-secret-ou", "an-[REDACTED:IN]-ou", 1},
		{"one starts another", []Secret{{"A", "12345678"}, {"B", "1234567890"}}, "1234567890 12345678", "[REDACTED:B] [REDACTED:A]", 2},
		{"one ends another", []Secret{{"A", "34567890"}, {"B", "1234567890"}}, "1234567890 34567890", "[REDACTED:B] [REDACTED:A]", 2},
		{"a chain of three", []Secret{{"A", "aaaabbbb"}, {"B", "bbbbcccc"}, {"C", "ccccdddd"}}, "aaaabbbbccccdddd", "[REDACTED:A][REDACTED:B][REDACTED:C]", 3},
		{"a chain with holes", []Secret{{"A", "aaaabbbb"}, {"C", "ccccdddd"}}, "aaaabbbbccccdddd", "[REDACTED:A][REDACTED:C]", 2},
		{"the same value twice", []Secret{{"A", "12345678"}, {"B", "12345678"}}, "12345678", "[REDACTED:A]", 1},
		{"with itself", []Secret{{"A", "ababababab"}}, "abababababababx", "[REDACTED:A]x", 1},
		{"a run of one byte", []Secret{{"A", "aaaaaaaa"}}, strings.Repeat("a", 100) + "b", "[REDACTED:A]b", 1},
		{"one that is another's base64", []Secret{{"A", "12345678"}, {"B", base64.RawStdEncoding.EncodeToString([]byte("12345678"))}}, "MTIzNDU2Nzg", "[REDACTED:A]", 1},
		{"a mask's text between secrets", []Secret{{"A", "12345678"}}, "12345678[REDACTED:A]12345678", "[REDACTED:A][REDACTED:A][REDACTED:A]", 2},
		{"a value of masks", []Secret{{"A", "12345678"}, {"B", "[REDACTED:A]!"}}, "12345678!", "[REDACTED:A]!", 1},
	} {
		for n := 1; n <= len(tt.in); n++ {
			sc, all := recorder(mustSecrets(t, tt.secrets...))
			for part := range slices.Chunk([]byte(tt.in), n) {
				sc.Write(part, Changed)
			}
			sc.Flush()
			if got := textOf(*all); got != tt.want || sc.Masked() != tt.masked {
				t.Errorf("%s: in writes of %d it is %q with %d masks; want %q with %d", tt.name, n, got, sc.Masked(), tt.want, tt.masked)
			}
		}
	}
}

// At the end of a stream a whole secret is masked, and a part of one is passed on as it
// is. A stream may go on after a Flush.
func TestScrubAtTheEnd(t *testing.T) {
	t.Parallel()
	const value = "hunter2hunter2"
	secrets := mustSecrets(t, Secret{"A", value}, Secret{"LONG", value + strings.Repeat("-and-more", 10)})
	for n := range len(value) {
		sc, all := recorder(secrets)
		sc.Write([]byte("x "+value[:n]), Changed)
		held := len("x "+value[:n]) - len(textOf(*all))
		if held > n {
			t.Errorf("after %q, %d bytes are held back; want at most the %d that may start a secret", "x "+value[:n], held, n)
		}
		sc.Flush()
		if got := textOf(*all); got != "x "+value[:n] || sc.Masked() != 0 {
			t.Errorf("the first %d bytes of a secret end as %q with %d masks; want them as they are", n, got, sc.Masked())
		}
	}
	sc, all := recorder(secrets)
	sc.Write([]byte("x "+value), Changed)
	if got := textOf(*all); got != "x " {
		t.Errorf("before the end, %q is passed on; want x alone: a longer secret may follow", got)
	}
	sc.Flush()
	sc.Flush()
	if got := textOf(*all); got != "x [REDACTED:A]" || sc.Masked() != 1 {
		t.Errorf("at the end it is %q with %d masks; want the mask once", got, sc.Masked())
	}
	sc.Write([]byte(value+" y"), Changed)
	sc.Flush()
	if got := textOf(*all); got != "x [REDACTED:A][REDACTED:A] y" || sc.Masked() != 2 {
		t.Errorf("after a Flush it goes on as %q with %d masks; want a second mask", got, sc.Masked())
	}
	// A secret that a Flush has cut is not found: half of it was passed on.
	sc, all = recorder(secrets)
	sc.Write([]byte(value[:7]), Changed)
	sc.Flush()
	sc.Write([]byte(value[7:]+"."), Changed)
	sc.Flush()
	if got := textOf(*all); got != value+"." {
		t.Errorf("cut by a Flush it is %q; want %q", got, value+".")
	}
}

// A Scrubber says of each part whether a second one must search it, and does not search
// what it is told was searched. Both may miss only secrets that join parts of each.
func TestOrigins(t *testing.T) {
	t.Parallel()
	secrets := mustSecrets(t, Secret{"A", "hunter2hunter2"})
	sc, all := recorder(secrets)
	sc.Write([]byte("x hunter2hunter2 y"), Changed)
	sc.Flush()
	if want := []passed{{"x ", Scanned}, {"[REDACTED:A]", Changed}, {" y", Scanned}}; !slices.Equal(*all, want) {
		t.Errorf("passed on %v; want %v", *all, want)
	}
	sc, all = recorder(secrets)
	sc.Write([]byte("x hun"), Scanned)
	sc.Write([]byte("ter2hunter2 y"), Scanned)
	sc.Flush()
	if got := textOf(*all); got != "x [REDACTED:A] y" {
		t.Errorf("a secret between two searched parts becomes %q; want a mask", got)
	}
	sc, all = recorder(nil)
	sc.Write([]byte("hunter2hunter2"), Changed)
	sc.Write(nil, Scanned)
	sc.Flush()
	if want := []passed{{"hunter2hunter2", Changed}, {"", Scanned}}; !slices.Equal(*all, want) || sc.Masked() != 0 {
		t.Errorf("without secrets: %v, %d masks; want every write unchanged", *all, sc.Masked())
	}
}

// The caller may use its buffer again after each Write, and must not see it changed.
func TestWriteKeepsNothing(t *testing.T) {
	t.Parallel()
	secrets := mustSecrets(t, Secret{"A", "hunter2hunter2"})
	const text = "x hunter2hunter2 hunter2hunter2hunt"
	sc, all := recorder(secrets)
	buf := make([]byte, 5)
	for part := range slices.Chunk([]byte(text), len(buf)) {
		n := copy(buf, part)
		sc.Write(buf[:n], Changed)
		if string(buf[:n]) != string(part) {
			t.Fatalf("Write() has changed %q to %q", part, buf[:n])
		}
		copy(buf, "#####")
	}
	sc.Flush()
	if got, want := textOf(*all), "x [REDACTED:A] [REDACTED:A]hunt"; got != want {
		t.Errorf("it is %q; want %q", got, want)
	}
}

// A set of secrets serves many streams at once.
func TestSecretsAreShared(t *testing.T) {
	t.Parallel()
	secrets := manySecrets(t)
	token := secrets.index.needles[0].text
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			in := strings.Repeat(fmt.Sprintf("%d %s\n", i, token), 200)
			want := strings.Repeat(fmt.Sprintf("%d %s\n", i, secrets.masks[0]), 200)
			if got := scrubbed(secrets, in, 7+i); got != want {
				t.Errorf("stream %d is not masked as the others", i)
			}
		})
	}
	wg.Wait()
}

// The line ends that the search ignores are those of dumps, and no others.
func TestLineEndsOfDumps(t *testing.T) {
	t.Parallel()
	const value = "hunter2hunter2hunter2hunter2hunter2hunter2" // in base64 longer than a line
	secrets := mustSecrets(t, Secret{"S", value})
	dump := base64.StdEncoding.EncodeToString([]byte(value))
	for _, tt := range []struct {
		name  string
		width int
		end   string
		whole bool // one mask for all of it
	}{
		{"in one line", 1 << 20, "\n", true},
		{"lines of the least length", minWrap, "\n", true},
		{"CRLF", minWrap, "\r\n", true},
		{"shorter lines", minWrap - 1, "\n", false},
		{"an empty line between", minWrap, "\n\n", false},
		{"a space between", minWrap, " \n", false},
		{"a CR alone", minWrap, "\r", false},
	} {
		in := wrapLines(dump, tt.width, tt.end)
		for n := 1; n <= len(in); n++ {
			got := scrubbed(secrets, in, n)
			if masked := strings.HasPrefix(got, "[REDACTED:S]") && strings.Count(got, "\n") < 2 && len(got) < 30; masked != tt.whole {
				t.Fatalf("%s, in writes of %d: %q; want all of it masked: %v", tt.name, n, got, tt.whole)
			}
		}
	}
}

// A long line before a short one does not make the short one a line of a dump, wherever the
// stream is cut.
func TestShortLineAfterALongOne(t *testing.T) {
	t.Parallel()
	const value = "hunter2hunter2hunter2hunter2"
	secrets := mustSecrets(t, Secret{"S", value})
	in := wrapLines(base64.StdEncoding.EncodeToString([]byte(value)), minWrap-5, "\n")
	want := scrubbed(secrets, in, len(in))
	for _, before := range []string{strings.Repeat("A", 2*minWrap) + " ", strings.Repeat("A", minWrap) + "~=~"} {
		for n := 1; n <= len(before+in); n++ {
			if got := scrubbed(secrets, before+in, n); got != before+want {
				t.Errorf("scrub(%q) in writes of %d = %q; want %q", before+in, n, got, before+want)
			}
		}
	}
}

// A document stays one, whatever is masked in it, and its numbers and words are kept.
func TestScrubJSONEdges(t *testing.T) {
	t.Parallel()
	secrets := mustSecrets(t, Secret{"S", "hunter2hunter2"}, Secret{"TRUE", "true,null"}, Secret{"ESC", "a\"b\\c\nd\te"})
	for _, row := range []struct{ doc, want string }{
		{`"hunter2hunter2"`, `"[REDACTED:S]"`},
		{`[true,null]`, `[true,null]`},
		{`["true,null"]`, `["[REDACTED:TRUE]"]`},
		{`{"a":"a\"b\\c\nd\te"}`, `{"a":"[REDACTED:ESC]"}`},
		{`{"a":"a\u0022b\u005cc\u000ad\u0009e"}`, `{"a":"[REDACTED:ESC]"}`},
		{"{\"a\"\t:\n\"hunter2hunter2\"\r}", "{\"a\"\t:\n\"[REDACTED:S]\"\r}"},
		{`{"id":"hunter2hunter2"}`, `{"id":"hunter2hunter2"}`},
		{`[{"id":"hunter2hunter2"}]`, `[{"id":"[REDACTED:S]"}]`},
		{`{"x":{"id":1},"y":"hunter2hunter2"}`, `{"x":{"id":1},"y":"[REDACTED:S]"}`},
		{`{"id":["hunter2hunter2"]}`, `{"id":["[REDACTED:S]"]}`},
		{`{"\u0069d":"hunter2hunter2"}`, `{"\u0069d":"[REDACTED:S]"}`},
		{`{"a":"<&> hunter2hunter2"}`, `{"a":"<&> [REDACTED:S]"}`},
		{`{"a":"\ud83d\ude00 hunter2hunter2"}`, `{"a":"😀 [REDACTED:S]"}`},
		{`{"a":"\\"}`, `{"a":"\\"}`},
		{`{"a":"\\\""}`, `{"a":"\\\""}`},
		{`{}`, `{}`},
		{`[]`, `[]`},
		{`0`, `0`},
		{` `, ` `},
		{`{"a":"hunter2hunter2"`, `{"a":"[REDACTED:S]"`}, // no JSON
	} {
		got := string(secrets.ScrubJSON([]byte(row.doc), "id"))
		if got != row.want || json.Valid([]byte(row.doc)) != json.Valid([]byte(got)) {
			t.Errorf("ScrubJSON(%s) = %s; want %s", row.doc, got, row.want)
		}
	}
	var none *Secrets
	if doc := []byte(`{"a":"hunter2hunter2"}`); !bytes.Equal(none.ScrubJSON(doc), doc) {
		t.Error("without secrets a document is changed")
	}
}

// Which secrets are searched for, at the bounds.
func TestSecretBounds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, value string
		in, want    string
		warned      bool
	}{
		{"the shortest", "12345678", "12345678", "[REDACTED:N]", false},
		{"one byte less", "1234567", "1234567", "1234567", true},
		{"eight bytes of fewer characters", "äöü漢", "äöü漢", "[REDACTED:N]", false},
		{"line ends at its end", "12345678\r\n\n", "12345678\n", "[REDACTED:N]\n", false},
		{"line ends at its end alone", "\r\n", "\r\n", "\r\n", true},
		{"seven bytes and line ends", "1234567\n\n", "1234567\n\n", "1234567\n\n", true},
		{"white space is part of it", " 123456 ", " 123456 ", "[REDACTED:N]", false},
		{"NULs", "\x00\x01\x02\x03\x04\x05\x06\x07", "a\x00\x01\x02\x03\x04\x05\x06\x07b", "a[REDACTED:N]b", false},
		{"bytes that are not text", "\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8", "\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8", "[REDACTED:N]", false},
		{"a part of every mask", "REDACTED", "REDACTED", "REDACTED", true},
		{"as long as a piece", strings.Repeat("xy", maxPiece/2), strings.Repeat("xy", maxPiece/2) + "z", "[REDACTED:N]z", false},
		{"longer than a piece", "0" + strings.Repeat("xy", maxPiece/2), "0" + strings.Repeat("xy", maxPiece/2) + "z", "[REDACTED:N]z", false},
		{"a hundred pieces", string(manyBytes(100 * maxPiece)), "<" + string(manyBytes(100*maxPiece)) + ">", "<[REDACTED:N]>", false},
	} {
		s, warnings, err := NewSecrets([]Secret{{"N", tt.value}})
		if err != nil || (len(warnings) > 0) != tt.warned || s.Len() != 1-len(warnings) {
			t.Fatalf("%s: NewSecrets() = %d secrets, %v, %v; want a warning: %v", tt.name, s.Len(), warnings, err, tt.warned)
		}
		if got := s.Scrub(tt.in); got != tt.want {
			t.Errorf("%s: Scrub(%.40q) = %.60q; want %.60q", tt.name, tt.in, got, tt.want)
		}
	}
}

// manyBytes returns n letters that do not repeat within a piece.
func manyBytes(n int) []byte {
	b := make([]byte, 0, n+8)
	for i := 0; len(b) < n; i++ {
		b = strconv.AppendInt(b, int64(i)*7919+1000003, 36)
	}
	return b[:n]
}
