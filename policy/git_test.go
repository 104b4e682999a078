package policy

import "testing"

// TestGitCommands follows git to the command that it runs: its own options, aliases, and the
// commands that run others.
func TestGitCommands(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, Options{Checks: CheckNames()})
	for _, tt := range []struct {
		script string
		want   Verdict
	}{
		{"git -C d push -f", Deny},
		{"git -C push log -f", Allow},
		{"git -c a.b=c push -f", Deny},
		{"git -c a.b push -f", Deny},
		{"git --git-dir d push -f", Deny},
		{"git --git-dir=d --work-tree . push -f", Deny},
		{"git --no-pager -p push -f", Deny},
		{"git --namespace push log -f", Allow},
		{"git help push -f", Allow},
		{"git", Allow},
		{"git push -o -f", Allow}, // the option's value
		{"git push --push-option -f", Allow},
		{"git push -o x -f", Deny},
		{"git push --repo=x -f", Deny},
		{"git push -- -f", Allow}, // a remote of that name
		{"git push -- o +x", Deny},
		{`git push o "+$x"`, Deny},
		{`git push o "$x"`, Allow},
		{"git push --for", Deny},
		{"git push --force-w", Allow},
		{"git send-pack --force x", Deny},
		{"git http-push --force x", Deny},
		{"git pull -f", Allow},
		{"git -c remote.o.push=+x push", Deny},
		{"git config remote.o.push +x", Deny},
		{"git config set remote.o.push +x", Deny},
		{"git config remote.o.fetch +x", Allow},
		{"git config --get remote.o.push +x", Allow},

		{"git -c alias.x='push -f' x", Deny},
		{"git -c alias.x=push x -f", Deny},
		{"git -c alias.x=push x", Allow},
		{"git -c alias.X='push -f' x", Deny},
		{"git -c Alias.x='push -f' X", Deny},
		{"git -c alias.x=log -c alias.x='push -f' x", Deny}, // the last wins
		{"git -c alias.x='push -f' -c alias.x=log x", Allow},
		{"git -c alias.push=log push -f", Deny}, // git's own command wins
		{"git -c alias.push=log push", Allow},
		{"git -c alias.svn='push -f' svn", Deny}, // if git has no svn
		{"git -c alias.x='!rm -rf /' x", Deny},
		{"git -c alias.x='!rm -rf' x /", Deny},
		{"git -c alias.x='!rm -rf' x a", Allow},
		{"git -c alias.x='!rm -rf $1; :' x /", Deny},
		{"git -c alias.x='!f() { rm -rf $1; }; f' x /", Deny},
		{"git -c alias.x='!f() { rm -rf $1; }; f' x a", Allow},
		{"git config alias.x '!rm -rf /'", Deny},
		{"git config alias.x 'push -f'", Deny},
		{"git config alias.x push", Allow},

		{"git bisect run git push -f", Deny},
		{"git bisect run make test", Allow},
		{"git bisect start run -f", Allow},
		{"git submodule foreach 'git push -f'", Deny},
		{"git submodule foreach --recursive git push -f", Deny},
		{"git submodule --quiet foreach git push -f", Deny},
		{"git submodule foreach git push", Allow},
		{"git submodule update -f", Allow},
		{"git rebase -x 'git push -f' x", Deny},
		{"git rebase --exec='git push -f' x", Deny},
		{"git rebase -x 'make test' x", Allow},
		{"git rebase -f x", Allow},
		{"git filter-branch --tree-filter 'rm -rf /'", Deny},
		{"git filter-branch --tree-filter 'rm -rf a'", Allow},
		{"git difftool -x 'rm -rf /'", Deny},
		{"git difftool --extcmd='rm -rf /'", Deny},
		{"git difftool -x 'diff -r'", Allow},
		{"git for-each-repo --config=x push -f", Deny},
		{"git for-each-repo --config=x fetch", Allow},
	} {
		if d := p.Check(Input{Script: tt.script}); d.Verdict != tt.want {
			t.Errorf("Check(%q) = %s by %s (%s); want %s", tt.script, d.Verdict, d.Rule, d.Reason, tt.want)
		}
	}
}
