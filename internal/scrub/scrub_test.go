package scrub

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"math/rand/v2"
	"net/url"
	"os/exec"
	"strings"
	"testing"
)

func mustSecrets(tb testing.TB, list ...Secret) *Secrets {
	tb.Helper()
	s, warnings, err := NewSecrets(list)
	if err != nil || len(warnings) > 0 {
		tb.Fatalf("NewSecrets() = %v, %v; want no warning, nil", warnings, err)
	}
	return s
}

// manySecrets are random tokens of 8 to 200 characters, and two secrets of several lines.
func manySecrets(tb testing.TB) *Secrets {
	tb.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	token := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return base64.RawStdEncoding.EncodeToString(b)[:n]
	}
	var list []Secret
	for i, n := range []int{8, 12, 20, 20, 24, 32, 32, 36, 36, 40, 40, 40, 40, 48, 51, 56, 64, 200} {
		list = append(list, Secret{fmt.Sprintf("TOKEN_%d", i), token(n)})
	}
	for i := range 2 {
		list = append(list, Secret{fmt.Sprintf("PEM_%d", i), "-----BEGIN PRIVATE KEY-----\n" + token(64) + "\n" + token(64) + "\n-----END PRIVATE KEY-----\n"})
	}
	return mustSecrets(tb, list...)
}

// scrubbed sends text through a scrubber in writes of n bytes.
func scrubbed(s *Secrets, text string, n int) string {
	var b bytes.Buffer
	sc := New(s, func(p []byte, _ Origin) { b.Write(p) })
	for len(text) > 0 {
		n := min(n, len(text))
		sc.Write([]byte(text[:n]), Changed)
		text = text[n:]
	}
	sc.Flush()
	return b.String()
}

func wrapLines(s string, width int, end string) string {
	var b strings.Builder
	for len(s) > width {
		b.WriteString(s[:width] + end)
		s = s[width:]
	}
	return b.String() + s + end
}

const (
	awkward = `p'ss "w0rd"/&<é$` + "`x`" + `>\+=%`
	pemLike = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ\nshort\nC7VJTUt9Us8cKjMzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dV\n-----END KEY-----\n"
)

func TestScrub(t *testing.T) {
	t.Parallel()
	std, raw := base64.StdEncoding, base64.RawURLEncoding
	long := strings.Repeat("0123456789abcdefXYZ", 12)
	secrets := mustSecrets(t,
		Secret{"A", "hunter2hunter2"}, Secret{"B", "ter2-and-more"}, Secret{"C", "hunter2hunter2-longer"},
		Secret{"ODD", awkward}, Secret{"PEM", pemLike}, Secret{"LONG", long}, Secret{"EIGHT", "8bytes!!"},
		Secret{"SELF", "abcabcabc"})
	jsonOf := func(s string) string {
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	filler := strings.Repeat("words of no interest, and more of them\n", 30)
	for _, tt := range []struct{ name, in, want string }{
		{"nothing", "hunter2 hunter", "hunter2 hunter"},
		{"empty", "", ""},
		{"raw", "x hunter2hunter2 y", "x [REDACTED:A] y"},
		{"longest", "hunter2hunter2-longer", "[REDACTED:C]"},
		{"almost longest", "hunter2hunter2-longe", "[REDACTED:A]-longe"},
		{"overlapping", "hunter2hunter2-and-more.", "[REDACTED:A][REDACTED:B]."},
		{"adjacent", "8bytes!!8bytes!!", "[REDACTED:EIGHT][REDACTED:EIGHT]"},
		{"two adjacent", "8bytes!!hunter2hunter2", "[REDACTED:EIGHT][REDACTED:A]"},
		{"overlapping itself", "abcabcabcabcabc.", "[REDACTED:SELF]."},
		{"false start", "hunhunter2hunter2", "hun[REDACTED:A]"},
		{"far in", filler + "8bytes!!" + filler, filler + "[REDACTED:EIGHT]" + filler},
		{"json", `{"k":` + jsonOf(awkward) + `}`, `{"k":"[REDACTED:ODD]"}`},
		{"python json", `"p'ss \"w0rd\"/&<\u00e9$` + "`x`" + `>\\+=%"`, `"[REDACTED:ODD]"`},
		{"html", html.EscapeString(awkward), "[REDACTED:ODD]"},
		{"url query", "?k=" + url.QueryEscape(awkward) + "&", "?k=[REDACTED:ODD]&"},
		{"url path", "/" + url.PathEscape(awkward) + "/", "/[REDACTED:ODD]/"},
		{"url lower", lowerPercent(url.QueryEscape(awkward)), "[REDACTED:ODD]"},
		{"single quotes", "'" + strings.ReplaceAll(awkward, "'", `'\''`) + "'", "'[REDACTED:ODD]'"},
		{"hex", hex.EncodeToString([]byte(awkward)), "[REDACTED:ODD]"},
		{"hex upper", strings.ToUpper(hex.EncodeToString([]byte(awkward))), "[REDACTED:ODD]"},
		{"hex of xxd -p", wrapLines(hex.EncodeToString([]byte("a longer text with hunter2hunter2 in it")), 60, "\n"), wrapMask("a longer text with ", "A", " in it", hex.EncodeToString)},
		{"base64", std.EncodeToString([]byte(awkward)), "[REDACTED:ODD]=="},
		{"base64 url", raw.EncodeToString([]byte(awkward)), "[REDACTED:ODD]"},
		{"whole long", long + ".", "[REDACTED:LONG]."},
		{"one line of many", "at C7VJTUt9Us8cKjMzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dV!", "at [REDACTED:PEM]!"},
		{"all lines", "<" + pemLike + ">", "<[REDACTED:PEM]\n>"},
		{"all lines with CR", strings.ReplaceAll(pemLike, "\n", "\r\n"), "[REDACTED:PEM]\r\n[REDACTED:PEM]\r\nshort\r\n[REDACTED:PEM]\r\n[REDACTED:PEM]\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, n := range []int{len(tt.in) + 1, 1, 2, 3, 7, 64} {
				if got := scrubbed(secrets, tt.in, n); got != tt.want {
					t.Errorf("scrub(%q) in writes of %d = %q; want %q", tt.in, n, got, tt.want)
				}
			}
			if got := secrets.Scrub(tt.in); got != tt.want {
				t.Errorf("Scrub(%q) = %q; want %q", tt.in, got, tt.want)
			}
		})
	}
}

// wrapMask is a hex dump with a mask in it, as xxd -p breaks its lines.
func wrapMask(before, name, after string, enc func([]byte) string) string {
	return enc([]byte(before)) + "[REDACTED:" + name + "]" + enc([]byte(after)) + "\n"
}

// A secret in a base64 dump, in all alignments, breaks, line ends and alphabets:
// none of its characters that carry only bits of it is left.
func TestScrubBase64Dumps(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"8bytes!!", "hunter2hunter2", strings.Repeat("0123456789abcdefXYZ", 12)} {
		secrets := mustSecrets(t, Secret{"S", value})
		for before := range 100 {
			text := strings.Repeat("~", before) + value + strings.Repeat("?", before%5)
			for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding} {
				dump := enc.EncodeToString([]byte(text))
				from, to := (8*before+5)/6, 8*(before+len(value))/6
				for _, width := range []int{64, 76, 1 << 20} {
					for _, end := range []string{"\n", "\r\n"} {
						in := wrapLines(dump, width, end)
						for _, n := range []int{1, 50, len(in)} {
							checkDump(t, secrets, in, dump[from:to], n)
						}
					}
				}
			}
		}
	}
}

func checkDump(t *testing.T, secrets *Secrets, in, core string, n int) {
	t.Helper()
	got := scrubbed(secrets, in, n)
	flat := strings.NewReplacer("\n", "", "\r", "").Replace(got)
	if strings.Count(flat, "[REDACTED:S]") == 0 {
		t.Fatalf("scrub(%q) in writes of %d = %q; want a mask", in, n, got)
	}
	for i := range len(core) - 3 {
		if strings.Contains(flat, core[i:i+4]) {
			t.Fatalf("scrub(%q) in writes of %d = %q; %q is left", in, n, got, core[i:i+4])
		}
	}
}

// Programs that quote and encode by rules of their own.
func TestScrubRealPrograms(t *testing.T) {
	t.Parallel()
	secrets := mustSecrets(t, Secret{"ODD", "p's \"w\"/&$x`>\\+=%!"}, Secret{"PEM", pemLike}, Secret{"TOK", "ghp_0123456789abcdefABCDEF"})
	for _, script := range []string{
		`printf '%q\n' "$ODD"`, `export ODD; export -p`, `set`, `declare -p ODD PEM TOK`, `echo "${ODD@Q}" "${PEM@Q}"`,
		`printf %s "$PEM" | base64`, `printf %s "$ODD" | base64 -w 0`, `printf 'Bearer x%s' "$TOK" | base64 -w 64`,
		`printf %s "$PEM" | od -An -v -tx1 | tr -d ' \n'`, `env`, `printf '%s' "$PEM" "$ODD" "$TOK" "$TOK"`, `set -x; : "$ODD" "$TOK"`,
	} {
		bash, err := exec.LookPath("bash")
		if err != nil {
			t.Skip("no bash to compare with")
		}
		cmd := exec.CommandContext(t.Context(), bash, "-c", script)
		cmd.Env = []string{"PATH=/usr/bin:/bin", "ODD=p's \"w\"/&$x`>\\+=%!", "PEM=" + pemLike, "TOK=ghp_0123456789abcdefABCDEF"}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
		for _, n := range []int{1, len(out)} {
			got := scrubbed(secrets, string(out), n)
			if !strings.Contains(got, "[REDACTED:") {
				t.Errorf("%s: %q; want masks", script, got)
			}
			for _, part := range []string{`"w`, "MIIEvQIBADANBgkq", "C7VJTUt9Us8c", "ghp_0123456", "cCdzICJ3Ii8m", "TUlJRXZRSUJBREFO", "4d494945765149"} {
				if strings.Contains(got, part) {
					t.Errorf("%s: %q; %q is left", script, got, part)
				}
			}
		}
	}
}

func TestNewSecrets(t *testing.T) {
	t.Parallel()
	s, warnings, err := NewSecrets([]Secret{{"SHORT", "1234567"}, {"EMPTY", "\n"}, {"REDACTED", "REDACTED"}, {"OK", "12345678\n"}})
	if err != nil || s.Len() != 1 {
		t.Fatalf("NewSecrets() has %d secrets, %v; want 1, nil", s.Len(), err)
	}
	for i, name := range []string{"SHORT", "EMPTY", "REDACTED"} {
		if i >= len(warnings) || warnings[i].Name != name || !strings.Contains(warnings[i].String(), "will not be masked") && name != "EMPTY" {
			t.Fatalf("warnings %v; want one about %s", warnings, name)
		}
	}
	if strings.Contains(fmt.Sprint(warnings), "1234567") {
		t.Errorf("warnings %v show a value", warnings)
	}
	if got := s.Scrub("12345678 1234567 REDACTED"); got != "[REDACTED:OK] 1234567 REDACTED" {
		t.Errorf("Scrub() = %q", got)
	}
	for _, name := range []string{"", "a b", "x]", "é", strings.Repeat("x", 129)} {
		if _, _, err := NewSecrets([]Secret{{name, "12345678"}}); err == nil {
			t.Errorf("NewSecrets(%q) = nil; want an error", name)
		}
	}
	var none *Secrets
	if got := none.Scrub("x"); got != "x" || none.Len() != 0 {
		t.Errorf("nil Secrets: %q, %d", got, none.Len())
	}
}

// What is not part of a secret is passed on at once, above all whole lines.
func TestScrubHoldsBackLittle(t *testing.T) {
	t.Parallel()
	secrets := manySecrets(t)
	for _, in := range []string{"hello\n", "Listening on port 8080\n", "a line that is longer than thirty-two characters port 8080\n", "Continue? [y/N] "} {
		var b bytes.Buffer
		sc := New(secrets, func(p []byte, _ Origin) { b.Write(p) })
		sc.Write([]byte(in), Changed)
		if b.String() != in {
			t.Errorf("after %q only %q was passed on", in, b.String())
		}
	}
}

// At an even rate of secrets nothing goes wrong between large writes.
func TestScrubManyInLargeWrites(t *testing.T) {
	t.Parallel()
	secrets := mustSecrets(t, Secret{"A", "hunter2hunter2"}, Secret{"P", pemLike})
	var in, want strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&in, "%d hunter2hunter2 %d\n", i, i*i)
		fmt.Fprintf(&want, "%d [REDACTED:A] %d\n", i, i*i)
	}
	for _, n := range []int{4096, 65521, 128 << 10, in.Len()} {
		if got := scrubbed(secrets, in.String(), n); got != want.String() {
			t.Errorf("in writes of %d the output differs", n)
		}
	}
}

// What is held back is bounded by the longest form of a secret, whatever comes.
func TestScrubBoundedMemory(t *testing.T) {
	t.Parallel()
	s := mustSecrets(t, Secret{"K", strings.Repeat("k", 1000)})
	var passed int64
	sc := New(s, func(p []byte, _ Origin) { passed += int64(len(p)) })
	chunk := []byte(strings.Repeat(strings.Repeat("k", 30)+"-", 1<<15))
	for range 100 {
		sc.Write(chunk, Changed)
	}
	if kept := cap(sc.held) + cap(sc.joined); kept > 64<<10 {
		t.Errorf("the scrubber keeps %d bytes; want at most 64 KiB", kept)
	}
	if sc.Flush(); passed != int64(100*len(chunk)) || sc.Masked() != 0 {
		t.Errorf("passed %d bytes with %d masks; want %d and none", passed, sc.Masked(), 100*len(chunk))
	}
}
