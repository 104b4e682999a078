package sink

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// commandsIn returns what CI runners would take for commands in a log. It is our
// reading of their sources, and no code of theirs: of ActionCommand.cs in
// actions/runner (079cdb1; :: and ##[), Command.cs in azure-pipelines-agent
// (095e99b; ##vso[) and logs_section_*_regex in GitLab's lib/gitlab/regex.rb. That
// Azure's ##[ and TeamCity's ##teamcity[ may stand anywhere in a line is cautious:
// their documents show them at its start. A command need not be one that a runner
// knows. .NET compares these prefixes by the rules of a language, by which some
// characters count for nothing; the name is cut out by position all the same, and
// with such a character inside the prefix it is none that is known.
func commandsIn(log string, runners Runners) []string {
	var found []string
	if runners&GitLab != 0 {
		found = append(found, gitlabSection.FindAllString(log, -1)...)
	}
	for _, line := range strings.FieldsFunc(log, func(r rune) bool { return r == '\n' || r == '\r' }) { // as TextReader.ReadLine
		trimmed := strings.TrimLeftFunc(line, func(r rune) bool { return unicode.IsSpace(r) || r == '\uFEFF' })
		if runners&GitHub != 0 && strings.HasPrefix(trimmed, "::") && strings.Contains(trimmed[2:], "::") {
			found = append(found, line)
		}
		for prefix, of := range map[string]Runners{"##[": GitHub | Azure, "##vso[": Azure, "##teamcity[": TeamCity} {
			if at := strings.Index(line, prefix); runners&of != 0 && at >= 0 && strings.Contains(line[at:], "]") {
				found = append(found, line)
			}
		}
	}
	return found
}

var gitlabSection = regexp.MustCompile(`section_((?:start)|(?:end)):(\d+):([a-zA-Z0-9_.-]+)(\[\w+=\w+(, ?\w+=\w+)*\])?\r\x1b\[0K`)

var hostile = []struct {
	name, in, want string
	runners        Runners
}{
	{"plain", "all is well\nstd::string a::b::c\n", "all is well\nstd::string a::b::c\n", AllRunners},
	{"github", "::add-path::/tmp/x\n", ": :add-path::/tmp/x\n", GitHub},
	{"github after white space", "a\n \t\v\f::set-output name=a::b\n", "a\n \t\v\f: :set-output name=a::b\n", GitHub},
	{"github after a carriage return", "10%\r::stop-commands::x\n", "10%\r: :stop-commands::x\n", GitHub},
	{"github after a byte order mark", "\uFEFF::add-mask::a\n", "\uFEFF: :add-mask::a\n", GitHub},
	{"github after space of Unicode", "\u00a0\u2003\u3000\u0085::add-mask::a\n", "\u00a0\u2003\u3000\u0085: :add-mask::a\n", GitHub},
	{"github of version 1", "see ##[add-path]/tmp\n", "see ## [add-path]/tmp\n", GitHub},
	{"github, many", ":::::error::x\n####[group]a\n", ": ::::error::x\n#### [group]a\n", GitHub},
	{"azure", "x ##vso[task.setvariable variable=a]b\n##VSO[a.b]c\n", "x ##vso [task.setvariable variable=a]b\n##VSO [a.b]c\n", Azure},
	{"azure, halves", "##vs##vso[a.b]c\n", "##vs##vso [a.b]c\n", Azure},
	{"gitlab", "\x1b[0Ksection_start:1:a\r\x1b[0Kx", "\x1b[0Ksection_start :1:a\r\x1b[0Kx", GitLab},
	{"gitlab, end", "section_end:1:a\r\x1b[0K\n", "section_end :1:a\r\x1b[0K\n", GitLab},
	{"teamcity", "##teamcity[buildStatus text='x']\n", "##teamcity [buildStatus text='x']\n", TeamCity},
	{"others' are left alone", "##vso[a.b]c ##teamcity[x]\n", "##vso[a.b]c ##teamcity[x]\n", GitHub},
	{"no newline at the end", "abc", "abc\n", GitHub},
	{"gitlab has no lines", "abc", "abc", GitLab},
	{"cut off in a marker", "a ##", "a ##\n", GitHub},
	{"cut off in a section", "section_sta", "section_sta\n", GitLab},
	{"colon at the end", "\n:", "\n:\n", GitHub},
	{"utf-16", "\xff\xfe:\x00:\x00a\x00:\x00:\x00\n\x00", " \xff\xfe:\x00:\x00a\x00:\x00:\x00\n\x00\n", GitHub},
	{"empty", "", "", AllRunners},
}

func TestDefused(t *testing.T) {
	for _, tt := range hostile {
		t.Run(tt.name, func(t *testing.T) {
			for _, size := range []int{1, 2, 3, 5, max(1, len(tt.in))} {
				var log bytes.Buffer
				d := NewDefused(&log, tt.runners)
				for p := []byte(tt.in); len(p) > 0; p = p[min(size, len(p)):] {
					if _, err := d.Write(p[:min(size, len(p))]); err != nil {
						t.Fatal(err)
					}
				}
				if err := d.Close(); err != nil || log.String() != tt.want {
					t.Errorf("in pieces of %d: %q, %v; want %q", size, &log, err, tt.want)
				}
			}
		})
	}
}

// Two streams of one log make no command together, nor does a later process with
// what an earlier one has left, even one that was killed.
func TestDefusedTogether(t *testing.T) {
	var log bytes.Buffer
	stdout := NewDefused(&log, AllRunners)
	stderr := stdout.With(&log)
	for _, w := range []struct {
		to   *Defused
		text string
	}{{stdout, "one\n:"}, {stderr, ":add-path::x\n"}, {stdout, "#"}, {stderr, "#["}, {stdout, "group]x\nmiddle"}, {stderr, "::y::\nsection_"}, {stdout, "end:1:a\r\x1b[0K"}} {
		if _, err := w.to.Write([]byte(w.text)); err != nil {
			t.Fatal(err)
		}
	}
	if got := commandsIn(log.String(), AllRunners); got != nil {
		t.Errorf("the log has the commands %q", got)
	}
	if got, want := stdout.Count(), 3; got != want {
		t.Errorf("%d markers were found in %q; want %d", got, &log, want)
	}
	for cut := range len("x\n ##teamcity[a]") {
		whole := "x\n ##teamcity[a]"
		var log bytes.Buffer
		killed := NewDefused(&log, AllRunners) // and never closed
		_, _ = killed.Write([]byte(whole[:cut]))
		next := NewDefused(&log, AllRunners)
		_, _ = next.Write([]byte(whole[cut:]))
		_ = next.Close()
		if got := commandsIn(log.String(), AllRunners); got != nil {
			t.Errorf("killed after %q: the log has the commands %q", whole[:cut], got)
		}
	}
}

func FuzzDefused(f *testing.F) {
	for _, tt := range hostile {
		f.Add([]byte(tt.in), []byte{1, 2, 7}, int(tt.runners))
	}
	f.Fuzz(func(t *testing.T, in, cuts []byte, runners int) {
		kinds := Runners(runners) & AllRunners
		var log bytes.Buffer
		d := NewDefused(&log, kinds)
		for i, p := 0, in; len(p) > 0; i++ {
			n := len(p)
			if i < len(cuts) {
				n = min(n, int(cuts[i]))
			}
			if _, err := d.Write(p[:n]); err != nil {
				t.Fatal(err)
			}
			p = p[n:]
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if got := commandsIn(log.String(), kinds); got != nil {
			t.Errorf("%q became %q, with the commands %q", in, &log, got)
		}
		var again bytes.Buffer
		twice := NewDefused(&again, kinds)
		_, _ = twice.Write(log.Bytes())
		_ = twice.Close()
		if kinds&^GitLab != 0 && again.String() != log.String() {
			t.Errorf("%q became %q, and that %q", in, &log, &again)
		}
		without := func(p []byte) string { return strings.ReplaceAll(string(p), " ", "") }
		got, want := without(log.Bytes()), without(in)
		if got != want && got != want+"\n" {
			t.Errorf("%q became %q: more than spaces was changed", in, &log)
		}
	})
}
