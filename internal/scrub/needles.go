package scrub

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxPiece bounds a needle, and with it what a scrubber holds back. A longer form of a
// secret is searched for in pieces. Pieces that follow each other share one mask, and a
// piece that appears alone is masked too.
const maxPiece = 64

// A needle is one form of one secret, or a piece of it.
type needle struct {
	text   string
	secret int  // number of the secret
	later  bool // not the first piece: directly behind another one it shares that one's mask
}

// needlesOf returns the forms in which a secret is searched for: raw; base64 in its three
// alignments and both alphabets; hex in both cases; escaped for URLs, JSON, Go, HTML and
// the shell, in JSON and Go also twice; and, if it has several lines, each line that is
// long enough by itself.
//
// Other transformations are not covered, such as rev, tr, XOR, compression, or one
// character per line. If a base64 form starts or ends inside a group of three bytes, the
// one character that mixes bits of the secret with others stays. It shows at most four
// bits of the secret.
func needlesOf(secret int, value string) []needle {
	var out []needle
	seen := map[string]bool{}
	add := func(text string) {
		if len(text) < MinSecret {
			return
		}
		for i, piece := range pieces(text) {
			if !seen[piece] {
				seen[piece] = true
				out = append(out, needle{text: piece, secret: secret, later: i > 0})
			}
		}
	}
	for _, v := range append([]string{value}, lines(value)...) {
		add(v)
		for _, f := range slices.Concat(escapes(v), encodings(v)) {
			add(f)
		}
	}
	return out
}

// lines returns the lines of a value that has more than one, without the white
// space around them, if they are long enough to be searched for.
func lines(value string) []string {
	if !strings.ContainsAny(value, "\r\n") {
		return nil
	}
	var out []string
	for line := range strings.SplitSeq(value, "\n") {
		if line = strings.TrimSpace(line); len(line) >= MinSecret {
			out = append(out, line)
		}
	}
	return out
}

// pieces cuts text into as few pieces of at most maxPiece bytes as possible, all of about
// the same length. No piece starts with a line end, so that a scrubber need not hold line
// ends back. A rest that is too short to be searched for belongs to the piece before it,
// which can therefore be longer.
func pieces(text string) []string {
	var out []string
	for len(text) > 0 {
		n := (len(text) + maxPiece - 1) / maxPiece
		size := (len(text) + n - 1) / n
		for size < len(text) && (text[size] == '\n' || text[size] == '\r') {
			size++
		}
		if len(text)-size < MinSecret {
			size = len(text)
		}
		out = append(out, text[:size])
		text = text[size:]
	}
	return out
}

// encodings returns the base64 and hex forms.
func encodings(v string) []string {
	out := []string{
		hex.EncodeToString([]byte(v)),
		strings.ToUpper(hex.EncodeToString([]byte(v))),
		base64.RawStdEncoding.EncodeToString([]byte(v)),
		base64.RawURLEncoding.EncodeToString([]byte(v)),
	}
	for shift := range 3 {
		// Bits 8*shift up to 8*(shift+len(v)) are the secret's, and a character stands for
		// six bits. Keep the characters that have only bits of the secret.
		from := (8*shift + 5) / 6
		to := 8 * (shift + len(v)) / 6
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			out = append(out, enc.EncodeToString([]byte(strings.Repeat("\x00", shift) + v))[from:to])
		}
	}
	return out
}

// escapes returns the forms that quoting gives the value in URLs, JSON, HTML and
// the shell. Most of them equal the value for most secrets.
func escapes(v string) []string {
	query := url.QueryEscape(v)
	component := strings.ReplaceAll(query, "+", "%20")
	out := []string{
		query, component, url.PathEscape(v),
		lowerPercent(query), lowerPercent(component), lowerPercent(url.PathEscape(v)),
		strings.NewReplacer("%21", "!", "%27", "'", "%28", "(", "%29", ")", "%2A", "*").Replace(component),
		strings.ReplaceAll(component, "%2F", "/"),
		html.EscapeString(v),
		strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(v),
		strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(v),
		strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#x27;").Replace(v),
		strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#39;").Replace(v),
		strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&apos;").Replace(v),
		strings.ReplaceAll(v, "'", `'\''`),
		strings.ReplaceAll(v, "'", `'"'"'`),
		strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(v),
		strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`", "!", `\!`).Replace(v),
		backslashed(v), ansiC(v),
	}
	for _, j := range quotedForms(v) {
		out = append(out, j, strings.ReplaceAll(j, "/", `\/`))
		if j != v { // a quoted form inside a document or a log
			out = append(out, quotedForms(j)...)
		}
	}
	return out
}

// quotedForms returns the inside of the value's string in JSON and in Go.
func quotedForms(v string) []string {
	forms := jsonForms(v)
	for _, quoted := range []string{strconv.Quote(v), strconv.QuoteToASCII(v)} {
		forms = append(forms, quoted[1:len(quoted)-1])
	}
	return forms
}

func lowerPercent(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], strings.ToLower(string(b[i+1:i+3])))
			i += 2
		}
	}
	return string(b)
}

// jsonForms returns the inside of the value's JSON string as Go writes it, with HTML
// escaped and not, and as Python writes it, in ASCII.
func jsonForms(v string) []string {
	var forms []string
	for _, careful := range []bool{true, false} {
		var b strings.Builder
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(careful)
		if err := enc.Encode(v); err != nil { // a string always encodes
			continue
		}
		forms = append(forms, strings.TrimSuffix(b.String(), "\n"))
	}
	for i, f := range forms {
		forms[i] = f[1 : len(f)-1]
	}
	var ascii strings.Builder
	for _, r := range forms[len(forms)-1] {
		switch {
		case r < utf8.RuneSelf:
			ascii.WriteRune(r)
		case r > 0xFFFF:
			r -= 0x10000
			fmt.Fprintf(&ascii, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		default:
			fmt.Fprintf(&ascii, `\u%04x`, r)
		}
	}
	return append(forms, ascii.String())
}

// backslashed returns a value without control characters as bash's printf %q writes it.
func backslashed(v string) string {
	var b strings.Builder
	for i := range len(v) {
		if c := v[i]; !isAlnum(c) && c < utf8.RuneSelf && !strings.ContainsRune("%+-./:=@_", rune(c)) {
			b.WriteByte('\\')
		}
		b.WriteByte(v[i])
	}
	return b.String()
}

// ansiC returns the inside of bash's $'…', which is used for values with control
// characters.
func ansiC(v string) string {
	return strings.NewReplacer(`\`, `\\`, "'", `\'`, "\n", `\n`, "\r", `\r`, "\t", `\t`, "\x1b", `\E`).Replace(v)
}
