package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// Of git's configuration a session gets all but the credentials, and its other lines as they are.
func TestGitConfigIsCleaned(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, config, want string }{
		{"nothing to hide", "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = https://host.example/x.git\n", ""},
		{"a user in a URL", "\turl = https://me:s3cret@host.example/x.git\n", "\turl = https://host.example/x.git\n"},
		{"a token as the user", "\turl = https://ghp_s3cret@host.example/x.git\n", "\turl = https://host.example/x.git\n"},
		{"two URLs in a line", "insteadOf = https://a:s3cret@h ssh://b:s3cret@h\n", "insteadOf = https://h ssh://h\n"},
		{"in a section's name", "[http \"https://me:s3cret@host.example\"]\n", "[http \"https://host.example\"]\n"},
		{"a header", "[http]\n\textraheader = AUTHORIZATION: basic s3cret\n\tproxy = x\n", "[http]\n\tproxy = x\n"},
		{"in any case of letters", "\tExtraHeader=s3cret\n\tPASSWORD = s3cret\n\tToken =s3cret\n", "-"},
		{"a program that knows them", "[credential]\n\thelper = !echo password=s3cret\n", "[credential]\n"},
		{"in the section's line", "[credential] helper = s3cret\n\tname = x\n", "[credential]\n\tname = x\n"},
		{"over several lines", "\tpassword = s3\\\ns3cret\\\ns3cret\n\tname = x\n", "\tname = x\n"},
		{"over lines of Windows", "\tpassword = s3\\\r\ns3cret\r\n\tname = x\r\n", "\tname = x\r\n"},
		{"lines of Windows, nothing to hide", "[core]\r\n\tbare = false\r\n[remote \"origin\"]\r\n\turl = https://host.example/x.git\r\n", ""},
		{"a user in a URL, lines of Windows", "[remote]\r\n\turl = https://s3cret@h/x.git\r\n", "[remote]\r\n\turl = https://h/x.git\r\n"},
		{"in the section's line, lines of Windows", "[credential] helper = s3cret\r\n", "[credential]\r\n"},
		{"behind a byte order mark", "\ufeff[credential] helper = s3cret\n", "\ufeff[credential]\n"},
		{"a URL over several lines", "\turl = https://me:s3cr\\\nets3cr\\\net@host/x.git\n\tname = x\n", "\turl = https://host/x.git\n\tname = x\n"},
		{"a URL over lines of Windows", "\turl = https://me:s3cr\\\r\net@host/x.git\r\n", "\turl = https://host/x.git\r\n"},
		{"a URL with an @ in the password", "\turl = https://me:s3cret@s3cret@host/x.git\n", "\turl = https://host/x.git\n"},
		{"a proxy without a scheme", "[http]\n\tproxy = me:s3cret@proxy:8080\n", "[http]\n\tproxy = proxy:8080\n"},
		{"a proxy without a user", "[http]\n\tproxy = proxy:8080\n", ""},
		{"a mail account", "[sendemail]\n\tsmtpPass = s3cret\n[imap]\n\tpass = s3cret\n", "[sendemail]\n[imap]\n"},
		{"another program's token", "[hub]\n\toauthtoken = s3cret\n\tprotocol = https\n", "[hub]\n\tprotocol = https\n"},
		{"a value that looks like a section", "\tpassword = x\\\n[s3cret] token = y\n\tname = x\n", "\tname = x\n"},
		{"an escaped backslash does not go on", "\tpassword = s3cret\\\\\n\tname = x\n", "\tname = x\n"},
		{"a comment does not go on", "# note \\\n\tpassword = s3cret\n\tname = x\n", "# note \\\n\tname = x\n"},
		{"a plain value that goes on", "\tname = a\\\n b\\\n c\n", ""},
		{"keys that only contain such words", "\tpassport = x\n\ttokens = x\n\thelpers = x\n\tsslkeys = x\n", ""},
		{"a section with a bracket in its name", "[http \"https://x]y/\"]extraheader=s3cret\n", "[http \"https://x]y/\"]\n"},
		{"a name in front of a host", "\turl = ssh://git@host/x\n", "\turl = ssh://host/x\n"},
		{"an encoded @", "\turl = https://u:s3cret%40@h/x\n", "\turl = https://h/x\n"},
		{"nothing", "", ""},
		{"an address is not a URL", "\turl = git@host:x.git\n\temail = me@host\n", ""},
		{"in the last line, without an end", "[core]\n\tpassword = s3cret", "[core]\n"},
		{"in the section's line, without an end", "[core] password = s3cret", "[core]"},
		{"no end, nothing to hide", "[core]", ""},
	} {
		want := strings.TrimPrefix(row.want, "-")
		if row.want == "" {
			want = row.config
		}
		for _, name := range []string{".git/config", "a/b/.git/config", ".git/modules/x/config", "a/.git/modules/x/y/config"} {
			got, cleaned := Clean(name, []byte(row.config))
			if !cleaned || string(got) != want || strings.Contains(string(got), "s3cret") {
				t.Errorf("%s: Clean(%s) = %q, %t; want %q", row.name, name, got, cleaned, want)
			}
			if again, _ := Clean(name, got); !bytes.Equal(again, got) {
				t.Errorf("%s: cleaned twice it is %q; want %q", row.name, again, got)
			}
		}
		if got := GitCredentials(strings.NewReader(row.config)); got != (row.want != "") {
			t.Errorf("%s: GitCredentials() = %t; want %t", row.name, got, row.want != "")
		}
	}
	for _, name := range []string{"config", "git/config", ".git/configs", "x.git/config", ".git/hooks/config.sample", ".gitconfig", "a/.github/config"} {
		if got, cleaned := Clean(name, []byte("password = s3cret")); cleaned || got != nil {
			t.Errorf("Clean(%s) = %q, %t; want the file left alone", name, got, cleaned)
		}
	}
	if GitCredentials(iotest.ErrReader(errors.New("broken"))) {
		t.Error("GitCredentials() of what cannot be read = true")
	}
}

// A configuration that is longer than any of git's own gives away nothing behind its bound.
func TestLongGitConfig(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{
		"a long line":      "name = " + strings.Repeat("x", 2*maxGitConfig) + "\npassword = s3cret\n",
		"a long secret":    "password = " + strings.Repeat("s3cret", maxGitConfig/3) + "\n",
		"many short lines": strings.Repeat("name = xxxxxxxxx xxxxxxxxx xxxxxxxxx\n", maxGitConfig/30) + "url = https://s3cret@host\n",
	} {
		if got, cleaned := Clean(".git/config", []byte(config)); !cleaned || bytes.Contains(got, []byte("s3cret")) {
			t.Errorf("%s: Clean() keeps %d bytes, with the secret among them", name, len(got))
		}
	}
	// What is read of it ends at the bound, which may be in the middle of a secret.
	for name, last := range map[string]string{
		"a URL":                      "\turl = https://me:s3cret@host/x.git\n",
		"a URL over several lines":   "\turl = https://me:s3\\\ncret\\\ns3cret@host/x.git\n",
		"a secret that goes on":      "\tpassword = s3cret\\\ns3cret\n",
		"a proxy, lines of Windows":  "\tproxy = me:s3cret\\\r\n@proxy\r\n",
		"a header in a section line": "[http] extraheader = s3cret s3cret\n",
	} {
		for cut := range len(last) + 1 {
			config := "name = before\n" + last
			bound := len(config) - len(last) + cut
			got := string(cleanWithin([]byte(config)[:bound], bound))
			if strings.Contains(got, "s3") || strings.Contains(got, "cret") || !strings.HasPrefix(got, "name = before\n") {
				t.Errorf("%s, cut at its byte %d: there is left %q; want the line above, and nothing of the secret", name, cut, got)
			}
		}
	}
}

// git itself is the judge: of any configuration that it can read, it finds all but the secrets
// in what is left of it, and nothing of a secret is left.
func TestGitConfigAsGitReadsIt(t *testing.T) {
	t.Parallel()
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("no git here")
	}
	name := filepath.Join(t.TempDir(), "config")
	listed := func(config []byte) []string {
		if err := os.WriteFile(name, config, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), git, "config", "--file", name, "--list", "-z").Output()
		if err != nil {
			t.Fatalf("git cannot read %q: %v", config, err)
		}
		return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	}
	for seed := range uint64(60) {
		g := configGenerator{rand.New(rand.NewPCG(seed, 1)), "\n"}
		if g.r.IntN(2) == 0 {
			g.end = "\r\n"
		}
		config := []byte(g.config())
		clean, _ := Clean(".git/config", config)
		if bytes.ContainsRune(clean, 'X') {
			t.Errorf("seed %d: of %q there is left %q; want no X", seed, config, clean)
		}
		if again, _ := Clean(".git/config", clean); !bytes.Equal(again, clean) {
			t.Errorf("seed %d: cleaned twice %q is %q", seed, clean, again)
		}
		var want []string
		for _, value := range listed(config) {
			if key, _, _ := strings.Cut(value, "\n"); strings.Contains(key, ".secret-") {
				continue
			}
			want = append(want, strings.ReplaceAll(strings.ReplaceAll(value, "me:XXXXXX@", ""), "XXXXXX@", ""))
		}
		if diff := cmp.Diff(want, listed(clean)); diff != "" {
			t.Errorf("seed %d: git reads of %q (-want +got):\n%s", seed, clean, diff)
		}
	}
}

// configGenerator writes configurations in which every X is part of a secret. Keys of secrets
// begin with "secret-".
type configGenerator struct {
	r   *rand.Rand
	end string // of a line
}

func (g configGenerator) pick(list ...string) string { return list[g.r.IntN(len(list))] }

func (g configGenerator) config() string {
	var b strings.Builder
	b.WriteString(g.pick("", "\ufeff"))
	for n := range 12 {
		if n == 0 || g.r.IntN(4) == 0 {
			b.WriteString(g.pick("[core]", "[remote \"x y\"]", "[http \"https://host/a\"]", "[credential]") + g.pick(" ", g.end, "\t", "# note \\"+g.end))
		}
		switch g.r.IntN(4) {
		case 0:
			b.WriteString(g.pick("", "\t") + "secret-" + g.pick("token", "Password", "helper", "EXTRAHEADER", "smtppass", "sslKey") + g.pick("=", " = "))
			b.WriteString(g.broken("a XXXXXX XXXXXX b"))
		case 1:
			b.WriteString(g.pick("\turl = ", "pushurl=") + g.broken(g.pick("https://me:XXXXXX@host/p", "ssh://XXXXXX@host/p", "https://host/p")))
		case 2:
			b.WriteString("\tproxy = " + g.broken(g.pick("me:XXXXXX@host:80", "http://me:XXXXXX@host:80", "host:80")))
		default:
			b.WriteString("\tname = " + g.broken(g.pick("some words", "\"quoted ; \\\" text\"", "path/to@x", "c:\\\\dir\\\\")) + g.pick("", " # note", " ; note \\"))
		}
		b.WriteString(g.end)
	}
	return b.String()
}

// broken breaks a value over lines, but not behind a backslash.
func (g configGenerator) broken(value string) string {
	var b strings.Builder
	for i, r := range value {
		if i > 0 && g.r.IntN(8) == 0 && value[i-1] != '\\' {
			b.WriteString("\\" + g.end)
		}
		b.WriteRune(r)
	}
	return b.String()
}

// A conflict says how many names there are, shows the first, and that nothing was written.
func TestConflictWords(t *testing.T) {
	t.Parallel()
	var names []string
	for n := range fewNames + 5 {
		names = append(names, fmt.Sprintf("file-%02d", n))
	}
	for _, row := range []struct {
		e          ConflictError
		have, lack []string
	}{
		{ConflictError{Changed: names[:1]}, []string{"nothing was written: changed here", "file-00"}, []string{"more", "in the way"}},
		{ConflictError{Changed: names}, []string{"file-09", "and 5 more"}, []string{"file-10"}},
		{ConflictError{Changed: names[:1], Blocked: names[1:2]}, []string{"file-00; a directory is in the way", "file-01"}, []string{"more"}},
		{ConflictError{Blocked: []string{"a\x1b[2Jb\n"}}, []string{"in the way"}, []string{"\x1b", "\n", "changed"}},
	} {
		got := row.e.Error()
		for _, part := range row.have {
			if !strings.Contains(got, part) {
				t.Errorf("%+v says %q; want %q in it", row.e, got, part)
			}
		}
		for _, part := range row.lack {
			if strings.Contains(got, part) {
				t.Errorf("%+v says %q; want no %q in it", row.e, got, part)
			}
		}
	}
	e := &ConflictError{}
	for _, name := range []string{"a", "a", "b", "b", "a"} {
		e.block(name)
	}
	if got := strings.Join(e.Blocked, " "); got != "a b a" {
		t.Errorf("blocked are %q; want each once in a row", got)
	}
}
