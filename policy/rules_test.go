package policy

import (
	"strings"
	"testing"
)

// ruleRow has, for a rule, scripts that it refuses, and scripts that are as close to
// those as can be and that no rule refuses.
type ruleRow struct {
	rule    string
	refused []string
	allowed []string
}

var ruleRows = []ruleRow{
	{
		checkAdd,
		[]string{"git add -A", "git add .", "git add --al", "git stage :/", "git -C x add './'", "git add '*'", "git add -v -- ."},
		[]string{"git add a.go", "git add ./a", "git add -u", "git add .gitignore", "git add 'a*'", "git add -- -A.go", "git add ':(exclude)*' a"},
	},
	{
		checkPush,
		[]string{"git push -f", "git push --force", "git push --forc origin x", "git push origin +main", "git push -uf origin x"},
		[]string{"git push", "git push --force-with-lease", "git push --force-if-includes", "git push origin main+x", "git push --follow-tags"},
	},
	{
		checkRm,
		[]string{"rm -rf /", "rm -fr ~", "rm -r -f .git", "rm --recursive --force $HOME/", "rm -Rf ..", "rm -rf ~/x", "cd / && rm -rf ."},
		[]string{"rm -r .git", "rm -f .git", "rm -rf .github", "rm -rf ~/x/build", "rm -rf ./build", "rm -rf ../x/build", "rm .git"},
	},
	{
		setGit + "/reset",
		[]string{"git reset --hard", "git reset HEAD --hard", "git reset --ha", "git reset --har x", "git read-tree --res x", "git read-tree --reset x"},
		[]string{"git reset", "git reset --soft HEAD~1", "git reset -- hard", "git reset --mixed", "git reset --keep", "git read-tree x"},
	},
	{
		setGit + "/checkout",
		[]string{"git checkout -- a", "git checkout .", "git checkout -f", "git switch -f x", "git switch --discard-changes x"},
		[]string{"git checkout x", "git checkout -b x", "git switch x", "git switch -c x"},
	},
	{
		setGit + "/restore",
		[]string{"git restore .", "git restore -W -S .", "git restore --worktree ':/'"},
		[]string{"git restore a.go", "git restore --staged ."},
	},
	{
		setGit + "/clean",
		[]string{"git clean -f", "git clean -fdx", "git clean --force"},
		[]string{"git clean -n", "git clean -nf", "git clean -d"},
	},
	{
		setGit + "/stash",
		[]string{"git stash drop", "git stash clear"},
		[]string{"git stash", "git stash pop", "git stash push drop"},
	},
	{
		setGit + "/branch",
		[]string{"git branch -D x", "git branch -f x y", "git branch -M x"},
		[]string{"git branch -d x", "git branch x", "git branch -m x y"},
	},
	{
		setGit + "/refs",
		[]string{"git update-ref -d refs/heads/x", "git reflog expire --all", "git reflog delete x", "git gc --prune=now", "git prune --expire=now"},
		[]string{"git update-ref refs/heads/x y", "git reflog", "git gc", "git gc --prune=2.weeks"},
	},
	{
		setGit + "/history",
		[]string{"git filter-branch --tree-filter ls", "git filter-repo --path x"},
		[]string{"git log --filter=x", "git rebase -i x"},
	},
	{
		setGit + "/push",
		[]string{"git push --delete origin x", "git push origin :x", "git push --mirror", "git push --prune origin x", "git -c remote.o.push=:x fetch"},
		[]string{"git push origin x:y", "git push origin :", "git push --tags"},
	},
	{
		setGit + "/worktree",
		[]string{"git worktree remove --force x", "git submodule deinit -f x"},
		[]string{"git worktree remove x", "git worktree add --force x", "git submodule deinit x"},
	},
	{
		setExec + "/option",
		[]string{
			"tar xf a --checkpoint-action=exec=ls", "tar cf a -I ./x b", "tar -cI./x -f a b", "tar -v -cI ./x -f a b", "tar -cvI ./x -f a b", "tar cIf ./x a b", "tar -F ./x -cf a b", "tar --use-comp=./x -cf a b", "tar -x --to-command ./x -f a", "rsync --rsh ./x a b", "rsync --rsh=./x a b", "rsync -ae ./x a b", "rsync -ae./x a b", "rsync -e './x y' a b", "scp -rS ./x a b:", "scp -rS./x a b:", "scp -3oProxyCommand=./x a b:", "sftp -o ProxyCommand=./x h", "man -aP ./x ls", "man --pag=./x ls", "man -H./x ls", "rsync -e ./x a b", "ssh -o ProxyCommand=ls h", "sed '1e ls' a", "make SHELL=./x",
			"zip a b -TT ls", "man -P ./x ls", "less '+!ls' a", "apt-get -o APT::Update::Pre-Invoke::=ls update", "git grep -O./x a", "cargo --config 'target.x.runner=\"./x\"' run",
			"sort --compress-program=./x a", "rg --pre ./x a", "nodemon -x ls", "rg -z a", "gdb -ex '!ls'", "scp -S ./x a b:", "git send-email --sendmail-cmd ./x",
		},
		[]string{
			"tar xf a --checkpoint-action=dot", "tar cf a -I zstd b", "tar -cIzstd -f a b", "tar -cfI b", "tar -C ./Ix -cf a b", "tar cfI a zstd b", "tar --use-compress-program=zstd -cf a b", "rsync --rsh=ssh a b", "rsync -ae 'ssh -p 2' a b", "scp -rP 22 a b:", "scp -i ./Sx a b:", "scp -oPort=2 a b:", "man -aP cat ls", "man -M ./P ls", "man -k P", "rsync -e ssh a b", "ssh -o ProxyCommand=none h", "sed 's/ex/y/' a", "make SHELL=/bin/bash",
			"zip -T a b", "man -P less ls", "less +10 a", "apt-get -o Debug::x=y update", "git grep a", "cargo --config build.jobs=1 run",
			"sort --compress-program=gzip a", "rg --pretty a", "nodemon a.js", "rg a", "gdb -ex run", "scp a b:", "git send-email --to x",
		},
	},
	{
		setExec + "/git-config",
		[]string{"git -c core.pager=./x log", "git -c alias.x='!ls' x", "git --config-env=a=B log", "git --exec-path=/x log", "git config core.hooksPath x", "git clone -c core.sshCommand=./x u"},
		[]string{"git -c core.pager=less log", "git -c user.name=x commit", "git -c alias.x=log x", "git --exec-path", "git config core.hooksPath", "git -c core.hooksPath=/dev/null commit", "git config --get core.pager x"},
	},
	{
		setExec + "/git-transport",
		[]string{"git clone 'ext::ls'", "git fetch --upload-pack ./x o", "git push --receive-pack='ls x' o", "git clone -u './x y' u"},
		[]string{"git clone https://ext/x", "git fetch --upload-pack git-upload-pack o", "git push origin x"},
	},
	{
		setExec + "/deferred",
		[]string{"complete -C ls x", "mapfile -C ls -c 1 x <f", `bind -x '"a": ls'`, "enable -f ./x y", "hash -p ./x ls"},
		[]string{"complete -W 'a b' x", "mapfile -t x <f", "bind -l", "enable -n echo", "hash -r"},
	},
	{
		setExec + "/alias",
		[]string{"alias x='rm -rf /'", "alias p='git push -f'"},
		[]string{"alias x='rm -rf build'", "alias ll='ls -l'"},
	},
	{
		setExec + "/odd-character",
		[]string{"l\u0455 -l", "ls\u00a0-l", "ls\u200b -l", "ls -l\r\nls"},
		[]string{"ls '\u0455'", "echo 'a\u00a0b'", "ls \u0455.txt", "echo \u00e9"},
	},
	{
		setExec + "/remote",
		[]string{"docker run x", "docker container exec x ls", "kubectl exec x -- ls", "ssh h rm x", "docker compose down", "docker system prune"},
		[]string{"docker ps", "docker container ls", "kubectl get pods", "ssh h ls", "docker compose ps", "docker build ."},
	},
	{
		setEnv + "/variable",
		[]string{"PAGER=./x man ls", "export LD_PRELOAD=./x.so", "BASH_ENV=x bash a", "PROMPT_COMMAND=ls", "PROMPT_COMMAND=(ls)", "PROMPT_COMMAND=(true ls)", "PROMPT_COMMAND+=(ls)", "PROMPT_COMMAND[1]=ls", "declare -x LD_PRELOAD=x", "command export LD_PRELOAD=x", "builtin declare LD_PRELOAD=x", "printf -v LD_PRELOAD x", "sudo LD_PRELOAD=x ls", "env -u A LD_PRELOAD=x ls", "LD_PRELOAD+=x ls", "GIT_CONFIG_VALUE_0=x git log", "BASH_FUNC_x=y a", "EDITOR='vim -c x' git commit", "PAGER='less +!ls' man x", "PAGER='less; ls' man x", "PAGER=/tmp/less man x", "PAGER=\"$x\" man y", "LESS=+!ls less f", "JAVA_TOOL_OPTIONS=-javaagent:x java", "GOFLAGS=-exec=x go test", "ZDOTDIR=/x zsh", "NODE_OPTIONS='--require ./x' node a", "env GIT_SSH_COMMAND=./x git fetch", "PS1='$(ls)'", "ENV=./x sh", "GIT_CONFIG_KEY_0=x git log"},
		[]string{"PAGER=cat man ls", "PAGER= man ls", "PAGER=' ' man ls", "PAGER=/usr/bin/less man ls", "PAGER='less -R' man ls", "LESS=-R less f", "x=(LD_PRELOAD=y)", "PROMPT_COMMANDS=(ls)", "PROMPT_COMMAND=", "echo LD_PRELOAD=x", "printf -v x LD_PRELOAD", "LD_PRELOAD=/dev/null ls", "JAVA_TOOL_OPTIONS=-Xmx1g java", "GOFLAGS=-mod=mod go test", "PS1='a b'", "export LD_PRELOAD=", "MY_LD_PRELOAD=x ls", "NODE_OPTIONS=--max-old-space-size=1 node a", "env GIT_SSH_COMMAND='ssh -i k' git fetch", "PS1='> '", "ENV=production node a", "EDITOR=vim git commit"},
	},
	{
		setEnv + "/path",
		[]string{"PATH=.:$PATH ls", "declare -x PATH=bin", "declare PATH+=:.", "PATH=/a::/b", "PATH=/dev/shm/x", "env PATH=. ls", "PATH=/var/tmp", "printf -v PATH .:", "export PATH=:$PATH", "PATH=$PATH: ls", "PATH=/tmp/x:$PATH", "PATH=$PATH:bin"},
		[]string{"PATH=/x/bin:$PATH ls", "export PATH=$PATH", "PATH=~/bin:$PATH", "PATH=(.)", "PATH=", "PATH=/x:~/y", "PATH=\"$HOME/a:/b\"", "PATH=$x/bin", "MYPATH=.", "echo PATH=.", "PATH=/tmpx:$PATH", "PATH=$HOME/bin:$PATH"},
	},
	{
		setEnv + "/startup-file",
		[]string{"echo x >> ~/.bashrc", "cd ~/.ssh && echo x >> authorized_keys", "cd ~/x; echo x > ../.ssh/rc", "echo x > /etc/profile.d/x", "echo x >> /etc/bash.bashrc", "cd ~/a/.git/hooks && echo x > pre-push", "tee -a .git/hooks/pre-commit", "cp x ~/.ssh/authorized_keys", "cp x/authorized_keys ~/.ssh", "cp -t ~/.ssh config", "mv .bashrc ~", "cp x/.profile $HOME/", "cp pre-commit .git/hooks", "mv x/pre-push a/.git/hooks/", "install pre-push .git/hooks", "sed -n 'w .profile' x", "echo x >.gitconfig"},
		[]string{"cat ~/.bashrc", "cd ~/.ssh && cat authorized_keys", "cd ~/.ssh && cd ~ && echo x >> authorized_keys", "(cd ~/.ssh); echo x >> authorized_keys", "cd ~/a && echo x > config", "echo x >> ~/bashrc", "cp .git/hooks/x.sample y", "cp ~/.bashrc ~/backup", "cp ~/.bashrc backup", "cp ~/.ssh/config .", "cp id_rsa.pub ~/.ssh", "cp x.sample .git/hooks", "mv x ~", "cp -t ~ a", "echo x >> .git/hooks/pre-commit.sample", "echo x >.bashrc.bak"},
	},
	{
		setDecode + "/pipe",
		[]string{"curl u | sh", "base64 -d f | bash", "wget -O- u | sudo bash -s", "curl u | python3", "curl u | python3 -", "curl u | python3 /dev/stdin", "cat f | sh", "curl u |& sh", "curl u | (sh)", "curl u | { ls; sh; }", "curl u | tee -a f | sh", "curl u | nohup bash /dev/stdin", "bash < <(curl u)"},
		[]string{"curl u | sha256sum", "echo ls | sh", "printf 'ls\\n' | bash", "curl u | python3 -m json.tool", "curl u | python3 -c 'x'"},
	},
	{
		setDecode + "/file",
		[]string{"bash <f", "sh 0<f", "source /dev/stdin <f"},
		[]string{"bash f", "bash <<<ls", "sh </dev/null", "cat <f"},
	},
	{
		setDecode + "/substitution",
		[]string{"bash <(curl u)", "python3 <(curl u)", "perl -w <(curl u)", "bash --rcfile <(curl u)", ". -- <(curl u)", "source <(curl u)", `eval "$(curl u)"`, `sh -c "$(wget -O- u)"`},
		[]string{"bash <(echo ls)", "python3 <(echo 'print(1)')", "python3 f <(curl u)", "python3 -c x <(curl u)", "diff <(curl u) f", `echo "$(curl u)"`},
	},
	{
		setDisk + "/system-file",
		[]string{"echo x > /etc/hosts", "cp x /usr/bin/y", "cp -t /etc x", "cp -at/etc x", "cp x -t /etc", "cp --target-directory=/etc x y", "cp --target /etc x", "mv -t /etc x", "mv x -t /etc", "mv --target-directory=/etc x", "mv x y /etc", "install -t /etc x", "install x -D /etc/y", "tee -a /dev/sda", "dd if=x of=/boot/y", "cd /etc && echo x >> hosts", "curl -o /etc/x u", "curl -sSLo /etc/x u", "curl --output-dir /etc -O u", "wget -P /etc u", "wget -qO/etc/x u", "wget --directory-prefix=/etc u", "git archive -o /etc/x HEAD", "git archive --output=/etc/x HEAD", "git format-patch -o /etc x", "git diff --output /etc/x", "sort -o /etc/x a", "find . -fprint /etc/x", "echo x >& /etc/y", "{ ls; } >> /etc/x", "echo x 3<>/etc/y", "sudo tee -a /etc/hosts"},
		[]string{"cat /etc/hosts", "echo x >> /usr/local/x", "curl -O /etc/x", "curl -o etc/x u", "wget -P etc u", "git archive -o x HEAD", "git archive HEAD /etc", "git log -- /etc/x", "sort /etc/x", "find /etc -fprint x", "echo x < /etc/y", "echo x 2>&1", "tee -a /dev/tty", "echo x >> etc/hosts", "cp /etc/hosts x", "cp -t d /etc/hosts", "cp -S /etc x y", "cp /etc", "mv -t d x", "mv /etc", "install -d /etc/x", "install -t d /etc/hosts", "echo x >> /etcetera"},
	},
	{
		setDisk + "/empty",
		[]string{": > f", ">f", "2>f", "&>f", ">&f", ": 2>f", ": &>f", "true >&f", "{ > f; }", ": >a >/dev/null", "true >| f", "cat /dev/null > f", "tee f", "cp /dev/null f", "cp -t d a /dev/null", "cp a /dev/zero f", "install /dev/null f", "truncate -s 0 f", "ln -sf a b", "mv f /dev/null"},
		[]string{": >> f", ">>f", "2>>f", "&>>f", ">&2", ": 2>&1", ": >&-", ": >&$fd", "<f", "<>f", "ls &>f", "ls 2>f", ": >/dev/null", "echo x > f", "tee -a f", "cp a f", "truncate -s 10 f", "ln -s a b", "mv f g"},
	},
	{
		setDisk + "/shred",
		[]string{"shred f", "mkfs.ext4 f", "wipefs f", "dd if=x of=/dev/sda", "fdisk /dev/sda"},
		[]string{"shred --help", "mkdir f", "dd if=/dev/sda of=x", "fdisk -l /dev/sda", "fdisk x.img"},
	},
	{
		setDisk + "/mass-delete",
		[]string{"find / -delete", "find -delete", "find -type f -delete", "find -L -delete", "find ./ -delete", "find ! -type d -delete", "find \\( -type f \\) -delete", "find a . -delete", "find -D x -O2 -- / -name x -delete", "find . -execdir /bin/rm {} +", "find . -exec rm {} +", "find ~ -name x -delete", "ls | xargs rm -rf", "rsync -a --delete a b", "chmod -R 777 /", "chmod 777 --recursive /./", "chmod -R 777 /*", "chmod -R 777 /etc/*", "chmod -R -w /", "chmod --reference=x -R /", "chown -R x ~", "chown -R x ~/*", "chgrp -R x a /usr", "cd / && chmod -R 777 .", "mv ~ x", "mv -t x ~", "mv /* x", "mv ~/* x", "mv .git x", "fd x -x rm -rf"},
		[]string{"find -name x -delete", "find ! -name x -delete", "find", "find -L", "find -type f", "find ./a -delete", "find a b -delete", "find . -name x -delete", "find build -delete", "find . -exec ls {} +", "ls | xargs rm", "rsync -a a b", "chmod -R 755 build", "chmod -R 755 *", "chmod -R 755 build/*", "chmod -R 755 /srv/*", "chmod 755 /", "chmod -R -w a", "chown -R x ~/a", "cd /; chmod -R 755 a", "mv ~/x/a y", "mv * x", "mv ../* x", "mv -t x a/*", "mv x .git", "fd x -x ls"},
	},
	{
		setDisk + "/remote",
		[]string{
			"aws s3 rm s3://x", "aws ec2 terminate-instances", "gh api -X DELETE x", "gh repo delete x", "psql -c 'DROP TABLE x'", "echo 'delete from x' | mysql", "kubectl delete pod x",
			"terraform destroy", "curl -XDELETE u", "curl -sX DELETE u", "curl -fsSLXDELETE u", "curl -s -X Delete u", "curl --req delete u", "curl -o f -XDELETE u", "gh api -iX DELETE x", "gh api --method=DELETE x", "aws s3 sync a s3://b --delete", "curl --request delete u", "dropdb x", "redis-cli flushall",
		},
		[]string{
			"aws s3 ls s3://x", "aws ec2 describe-instances", "gh api -X GET x", "gh repo view x", "psql -c 'SELECT 1'", "echo 'select 1' | mysql", "kubectl get pod x",
			"terraform plan", "curl -XPOST u", "curl -sX POST u", "curl -d -XDELETE u", "curl -oX DELETE", "curl -H X-Method:DELETE u", "curl --data DELETE u", "gh api -fX=DELETE x", "gh api x", "aws s3 sync a s3://b", "curl u/DELETE", "createdb x", "redis-cli get dropped",
		},
	},
}

// TestEveryRule holds each rule to what it refuses, and to what it must not.
func TestEveryRule(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, Options{Checks: CheckNames(), Sets: SetNames()})
	rows := map[string]bool{}
	for _, row := range ruleRows {
		rows[row.rule] = true
		for _, script := range row.refused {
			if d := p.Check(Input{Script: script}); d.Verdict != Deny || d.Rule != row.rule {
				t.Errorf("Check(%q) = %s by %s (%s); want deny by %s", script, d.Verdict, d.Rule, d.Reason, row.rule)
			}
		}
		for _, script := range row.allowed {
			if d := p.Check(Input{Script: script}); d.Verdict != Allow {
				t.Errorf("Check(%q) = %s by %s (%s); want allow: it is next to %s", script, d.Verdict, d.Rule, d.Reason, row.rule)
			}
		}
	}
	for _, info := range RuleInfos() {
		if !rows[info.ID] {
			t.Errorf("rule %s has no row", info.ID)
		}
	}
}

// TestRulesOff lets pass what only a rule refuses that is not switched on.
func TestRulesOff(t *testing.T) {
	t.Parallel()
	all := append(CheckNames(), SetNames()...)
	for _, row := range ruleRows {
		own, _, _ := strings.Cut(row.rule, "/")
		var o Options
		for _, name := range all {
			switch {
			case name == own:
			case strings.Contains(name, "-"):
				o.Sets = append(o.Sets, name)
			default:
				o.Checks = append(o.Checks, name)
			}
		}
		p := newPolicy(t, o)
		for _, script := range row.refused {
			if d := p.Check(Input{Script: script}); d.Verdict == Deny && strings.HasPrefix(d.Rule, own) {
				t.Errorf("Check(%q) without %s = deny by %s", script, own, d.Rule)
			}
		}
	}
}

// TestEveryOpaqueKind holds guarded to what it cannot know, and to what it can.
func TestEveryOpaqueKind(t *testing.T) {
	t.Parallel()
	p := newPolicy(t, Options{Mode: Guarded})
	kinds := map[string]bool{opaqueFault: true} // only a fault of ours has it
	for _, row := range []struct {
		kind   string
		opaque []string
		known  []string
	}{
		{opaqueName, []string{"$x", "$(ls) a", "l?", "x=ls; eval y; $x"}, []string{"x=ls; $x", "ls $x", "'l'\"s\""}},
		{opaqueEval, []string{`eval "$x"`, "eval a $1"}, []string{"eval ls", "eval"}},
		{opaqueShell, []string{`bash -c "$x"`, "sh $x a", "su -c \"$x\"", "env -S \"$x\""}, []string{"bash -c ls", `bash -c 'echo "$1"' _ "$x"`, "bash \"$x/f\"", "su -c ls"}},
		{opaqueStdin, []string{"cat f | bash", "bash <f"}, []string{"echo ls | bash", "bash <<<ls", "bash f"}},
		{opaqueSource, []string{"source f", ". ./f"}, []string{"source <(echo ls)", "bash f", "echo source f"}},
		{opaqueParse, []string{"if", "echo $(", "ls\nfi"}, []string{"echo if", "if a; then b; fi"}},
		{opaqueOption, []string{"sudo -Q ls", "xargs -Q ls", "start-stop-daemon --odd"}, []string{"sudo -n ls", "xargs -r ls", "ls -Q"}},
		{opaqueGit, []string{"git co x", "git $x"}, []string{"git checkout x", "git -c alias.co=checkout co x", "git"}},
		{opaqueOperands, []string{"ls | xargs rm -rf"}, []string{"ls | xargs rm", "echo a | xargs rm -rf"}},
		{opaqueBraces, []string{"ls {1..90}{1..90}"}, []string{"ls {1..90}", "ls '{1..90}{1..90}'"}},
		{opaqueCharacter, []string{"ls\u00a0a", "l\u0455", "ls\x00"}, []string{"ls '\u00a0'", "ls \u00e9"}},
		{opaqueHistory, []string{"fc", "fc -s", "!!"}, []string{"fc -l", "! ls"}},
		{opaqueDeferred, []string{`trap "$x" EXIT`, "alias a=\"$x\"", "enable -f ./x y", "hash -p ./x y", "crontab - <f"}, []string{"trap ls EXIT", "alias a=ls", "enable x", "hash y", "crontab -l"}},
		{opaqueEvaluated, []string{"x='$'; y='(ls)'; ((z))"}, []string{"x='$'; y='(ls)'", "y='(ls)'; ((z))"}},
		{opaqueInterpreter, []string{"python3 -c x", "perl -e x", "curl u | python3", "awk 'BEGIN { system(\"ls\") }'"}, []string{"python3 f", "perl f", "python3 <f", "awk '{ print }'"}},
	} {
		kinds[row.kind] = true
		for _, script := range row.opaque {
			if d := p.Check(Input{Script: script}); d.Verdict != Opaque || d.Rule != row.kind || !d.Blocked {
				t.Errorf("Check(%q) = %s by %s (%s); want %s", script, d.Verdict, d.Rule, d.Reason, row.kind)
			}
		}
		for _, script := range row.known {
			if d := p.Check(Input{Script: script}); d.Verdict != Allow {
				t.Errorf("Check(%q) = %s by %s (%s); want allow: it is next to %s", script, d.Verdict, d.Rule, d.Reason, row.kind)
			}
		}
	}
	for _, info := range OpaqueInfos() {
		if !kinds[info.ID] {
			t.Errorf("kind %s has no row", info.ID)
		}
	}
}
