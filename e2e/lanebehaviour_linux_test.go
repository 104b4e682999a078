package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A behaviour is one of those that the self-check of inspect_ai's sandboxes asks
// for (row I18), asked in our words of our program: it has no adapter to theirs, and
// these are checks of our own. The list is that of the 33 functions of its file
// self_check.py, and after them what later versions are known to have added.
type behaviour struct {
	name   string // theirs, without test_
	check  func(*testing.T, *laneRun)
	waived string // why it is not so here
}

var behaviours = []behaviour{
	{name: "read_and_write_file_text", check: wholeFile("great #content\nincluding newlines")},
	{name: "read_and_write_file_binary", check: wholeFile("\xc3\x28")},
	{name: "read_and_write_large_file_binary", check: wholeFile(strings.Repeat("\xc3", 5_000_000))},
	{name: "write_file_text_utf", check: wholeFile("✨☽︎✨🌞︎︎✨🚀✨")},
	{name: "read_and_write_file_including_directory_absolute", check: file("f", "enjoying it", "/tmp/i18-abs")},
	{name: "read_and_write_file_including_directory_relative", check: file("f", "enjoying it", "i18-rel/deep")},
	{name: "read_file_zero_length", check: wholeFile("")},
	{name: "read_file_not_found", check: notRead("nonexistent", "no such file")},
	{name: "read_file_not_allowed", check: func(t *testing.T, on *laneRun) {
		on.in(t, on.session, "echo inaccessible >i18; chmod a-r i18")
		notRead("i18", "permission denied")(t, on)
		on.in(t, on.session, "rm -f i18")
	}},
	{name: "read_file_is_directory", waived: "`session pull` takes directories too, whole"},
	{name: "read_file_nonsense_name", check: notRead("https:/en.wikipedia.org/wiki/Bart%C5%82omiej_Kasprzykowski", "wikipedia")},
	{name: "read_file_limit", waived: "a file is read to a file of this machine, and has no limit; what a reader sees of output has one"},
	{name: "write_text_file_zero_length", check: wholeFile("")},
	{name: "write_text_file_space", check: file("file with space.file", "to the moon", "")},
	{name: "write_text_file_is_directory", check: ontoDirectory("text")},
	{name: "write_text_file_without_permissions", check: replaced("chmod a-w i18")},
	{name: "write_text_file_exists", check: replaced("true")},
	{name: "write_binary_file_zero_length", check: wholeFile("")},
	{name: "write_binary_file_space", check: file("file with space.file", "\xc3\x28", "")},
	{name: "write_binary_file_is_directory", check: ontoDirectory("\xc3\x28")},
	{name: "write_binary_file_without_permissions", check: intoClosedDirectory},
	{name: "write_binary_file_exists", check: replaced("true")},
	{name: "exec_output", check: printsOut("echo foo; echo bar", "foo\nbar", 0)},
	{name: "exec_timeout", check: func(t *testing.T, on *laneRun) {
		if _, code := on.in(t, on.session, "--timeout", "1s", "sleep 30"); code != 124 {
			t.Errorf("status %d; want 124", code)
		}
	}},
	{name: "exec_permission_error", check: printsOut("/etc/passwd 2>/dev/null", "", 126)},
	{name: "exec_as_user", waived: "a session's commands have one user, of its start: `--user`"},
	{name: "exec_as_nonexistent_user", waived: "users are numbers: names are not looked up in an image (row 0.10 of the threat model)"},
	{name: "cwd_unspecified", check: printsOut("pwd", "/workspace", 0)},
	{name: "cwd_custom", check: inDirectory("/usr/bin", "/usr/bin")},
	{name: "cwd_relative", check: inDirectory("i18-cwd", "/workspace/i18-cwd")},
	{name: "cwd_absolute", check: inDirectory("/workspace/i18-cwd", "/workspace/i18-cwd")},
	{name: "exec_stdout_is_limited", check: limitedOutput("")},
	{name: "exec_stderr_is_limited", check: limitedOutput(">&2")},

	{name: "exec_input_text", check: input("a b\n'c' $d")},
	{name: "exec_input_binary", check: input("\x00\xff\xfe\r\n\x04")},
	{name: "exec_input_large", check: input(strings.Repeat("0123456789abcdef", 64<<10))},
	{name: "exec_input_empty", check: input("")},
	{name: "exec_shell_special", check: printsOut(`printf '%s\n' '$HOME' '*' '"' "'" '!' '\'`, "$HOME\n*\n\"\n'\n!\n\\", 0)},
	{name: "exec_env_vars", check: func(t *testing.T, on *laneRun) {
		if out, code := on.in(t, on.session, "--env", "I18=a b=c", `echo "$I18"`); out != "a b=c" || code != 0 {
			t.Errorf("%q, status %d; want a b=c", out, code)
		}
	}},
	{name: "exec_output_utf", check: printsOut("printf '\\342\\234\\250\\n'", "✨", 0)},
	{name: "exec_timeout_kills_child_processes", check: func(t *testing.T, on *laneRun) {
		on.in(t, on.session, "--timeout", "1s", "(while :; do echo x >>i18-grows; sleep 0.1; done) & wait")
		out, _ := on.in(t, on.session, "a=$(wc -c <i18-grows); sleep 0.5; test $a = $(wc -c <i18-grows) && echo still; rm i18-grows")
		if out != "still" {
			t.Errorf("%q; want a file that grows no more", out)
		}
	}},
	{name: "exec_returncode", check: printsOut("exit 70", "", 70)},
	{name: "exec_large_command", check: func(t *testing.T, on *laneRun) {
		printsOut("echo "+strings.Repeat("x", 100_000)+" | wc -c", "100001", 0)(t, on)
	}},
	{name: "exec_concurrent", check: func(t *testing.T, on *laneRun) {
		done := make(chan string)
		for range 4 {
			go func() {
				out, err := on.try(t.Context(), "session", "exec", on.session, "echo one")
				if err != nil {
					out = err.Error()
				}
				done <- out
			}()
		}
		for range 4 {
			if out := <-done; out != "one" {
				t.Errorf("%q; want one", out)
			}
		}
	}},
}

var behaviourChecks = []laneCheck{{"I18: behaviours that inspect_ai's self-check asks for", func(t *testing.T, on *laneRun) {
	for _, b := range behaviours {
		if b.waived != "" {
			continue
		}
		t.Run(b.name, func(t *testing.T) { b.check(t, on) })
	}
}}}

// wholeFile writes a file and reads it.
func wholeFile(content string) func(*testing.T, *laneRun) { return file("i18", content, "") }

func file(name, content, dir string) func(*testing.T, *laneRun) {
	return func(t *testing.T, on *laneRun) {
		here := t.TempDir()
		if err := os.WriteFile(filepath.Join(here, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		on.run(t, "session", "push", filepath.Join(here, name), on.session+":"+dir)
		back := filepath.Join(here, "back")
		on.run(t, "session", "pull", on.session+":"+filepath.Join(dir, name), back+string(filepath.Separator))
		got, err := os.ReadFile(filepath.Join(back, name))
		if err != nil || string(got) != content {
			t.Errorf("%d bytes came back of %d: %v", len(got), len(content), err)
		}
		on.in(t, on.session, "rm -f "+`"`+filepath.Join(dir, name)+`"`)
	}
}

func notRead(name, says string) func(*testing.T, *laneRun) {
	return func(t *testing.T, on *laneRun) {
		_, err := on.try(t.Context(), "session", "pull", on.session+":"+name, t.TempDir())
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), name) {
			t.Errorf("pull %s: %v; want an error that says %q", name, err, says)
		}
	}
}

// ontoDirectory writes a file where a directory is: that stays.
func ontoDirectory(content string) func(*testing.T, *laneRun) {
	return func(t *testing.T, on *laneRun) {
		here := filepath.Join(t.TempDir(), "i18-dir")
		if err := os.WriteFile(here, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		on.in(t, on.session, "mkdir i18-dir; echo kept >i18-dir/f")
		_, err := on.try(t.Context(), "session", "push", here, on.session+":")
		out, _ := on.in(t, on.session, "cat i18-dir/f; rm -rf i18-dir")
		if err == nil || !strings.Contains(err.Error(), "directory") || out != "kept" {
			t.Errorf("push onto a directory: %v, and in it %q; want it refused", err, out)
		}
	}
}

// replaced writes a file where one is.
func replaced(before string) func(*testing.T, *laneRun) {
	return func(t *testing.T, on *laneRun) {
		on.in(t, on.session, "echo old >i18; "+before)
		wholeFile("altered content")(t, on)
	}
}

func intoClosedDirectory(t *testing.T, on *laneRun) {
	here := filepath.Join(t.TempDir(), "i18")
	if err := os.WriteFile(here, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	on.in(t, on.session, "mkdir i18-closed; chmod a-w i18-closed")
	if _, err := on.try(t.Context(), "session", "push", here, on.session+":i18-closed"); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("push into a directory without permission: %v; want it refused", err)
	}
	on.in(t, on.session, "rmdir i18-closed")
}

func printsOut(script, want string, code int) func(*testing.T, *laneRun) {
	return func(t *testing.T, on *laneRun) {
		if out, got := on.in(t, on.session, script); out != want || got != code {
			t.Errorf("%.100s: %.200q, status %d; want %q, %d", script, out, got, want, code)
		}
	}
}

func inDirectory(dir, want string) func(*testing.T, *laneRun) {
	return func(t *testing.T, on *laneRun) {
		on.in(t, on.session, "mkdir -p i18-cwd")
		if out, code := on.in(t, on.session, "--cwd", dir, "pwd"); out != want || code != 0 {
			t.Errorf("--cwd %s: %q, status %d; want %s", dir, out, code, want)
		}
	}
}

func limitedOutput(to string) func(*testing.T, *laneRun) {
	return func(t *testing.T, on *laneRun) {
		out, _ := on.in(t, on.session, "--json", "--output-limit", "1000000", "exec yes "+to)
		if !strings.Contains(out, `"output-limit"`) {
			t.Errorf("a command that writes without end, limited: %.300s; want it ended for that", out)
		}
	}
}

func input(content string) func(*testing.T, *laneRun) {
	return func(t *testing.T, on *laneRun) {
		cmd := on.command(t.Context(), "session", "exec", "--stdin", on.session, "cat")
		cmd.Stdin = strings.NewReader(content)
		if out, err := cmd.Output(); err != nil || !bytes.Equal(out, []byte(content)) {
			t.Errorf("%d bytes of input: %d came back, %v", len(content), len(out), err)
		}
	}
}
