package policy

import "testing"

func TestLoadsCode(t *testing.T) {
	t.Parallel()
	for entry, want := range map[[2]string]bool{
		{"LD_PRELOAD", "x.so"}: true, {"LD_LIBRARY_PATH", "lib"}: true, {"LD_AUDIT", "x"}: true, {"BASH_ENV", "x"}: true,
		{"BASH_FUNC_ls%%", "() { :; }"}: true, {"PROMPT_COMMAND", "x"}: true, {"PYTHONSTARTUP", "x"}: true, {"PERL5OPT", "-Mx"}: true,
		{"RUBYOPT", "-rx"}: true, {"GIT_SSH_COMMAND", "x"}: true, {"GIT_CONFIG_COUNT", "1"}: true, {"GIT_CONFIG_KEY_0", "x"}: true,
		{"NODE_OPTIONS", "--require ./x.js"}: true, {"NODE_OPTIONS", "-r=./x.js"}: true, {"NODE_OPTIONS", "--max-old-space-size=4096 --import x"}: true,
		{"JAVA_TOOL_OPTIONS", "-javaagent:x.jar"}: true, {"ENV", "/tmp/x"}: true, {"ENV", "$HOME/x"}: true, {"PS1", "$(x)"}: true,
		{"DYLD_INSERT_LIBRARIES", "x"}: true, {"PYTHONHOME", "x"}: true,
		{"LD_PRELOAD", ""}: false, {"ENV", "production"}: false, {"NODE_OPTIONS", "--max-old-space-size=4096"}: false,
		{"NODE_ENV", "test"}: false, {"PATH", "/usr/bin"}: false, {"PAGER", "cat"}: false, {"EDITOR", "vim"}: false, {"LESS", "FRX"}: false,
		{"JAVA_TOOL_OPTIONS", "-Xmx1g"}: false, {"PS1", "> "}: false, {"GIT_CONFIG_GLOBAL", "/dev/null"}: false, {"HOME", "/x"}: false,
		{"MY_LD_PRELOAD", "x"}: false, {"CI", "1"}: false, {"GIT_PAGER", "cat"}: false, {"DATABASE_URL", "x"}: false,
	} {
		if got := LoadsCode(entry[0], entry[1]); got != want {
			t.Errorf("LoadsCode(%q, %q) = %t; want %t", entry[0], entry[1], got, want)
		}
	}
}
