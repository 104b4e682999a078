package images_test

import (
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/engine/docker/dockertest"
)

// usage is what people do with a shell, each with what it must print (a part of
// it is enough). It runs as uid 1000 without a network, as in a session.
var usage = []struct {
	name, script, want string
}{
	{"bash arrays", `a=(1 2 3); echo ${#a[@]} ${a[-1]}`, "3 3"},
	{"sh", `sh -c 'echo $((6*7))'`, "42"},
	{"whoami", `whoami; id -un; getent passwd agent`, "agent:x:1000:1000"},
	{"groups", `id -gn`, "agent"},
	{"ls", `ls -la / | grep -c workspace`, "1"},
	{"false", `/usr/bin/false || echo no`, "no"},
	{"test as a program", `/usr/bin/test -d /tmp && /usr/bin/[ -d /tmp ] && echo yes`, "yes"},
	{"git commit", `cd /tmp && git init -q r && cd r && echo a>a && git add a && git -c user.name=a -c user.email=a@b commit -qm one && git log --format=%s`, "one"},
	{"git branch and diff", `cd /tmp && git init -q r2 && cd r2 && git config user.name a && git config user.email a@b && echo a>a && git add . && git commit -qm 1 && git checkout -qb x && echo b>>a && git diff --stat`, "1 file changed"},
	{"git clone", `cd /tmp && git init -q o && git -C o -c user.name=a -c user.email=a@b commit -q --allow-empty -m e && git clone -q o o2 && git -C o2 log --format=%s`, "e"},
	{"git stash and rebase help", `git rebase -h 2>&1; git --exec-path`, "git-core"},
	{"perl modules", `perl -MPOSIX -MData::Dumper -MFile::Temp -MTime::Local -e 'print POSIX::floor(3.7),"\n"'`, "3"},
	{"perl unicode", `perl -CS -Mutf8 -e 'print "ä" =~ /\p{L}/ ? "letter\n" : "no\n"'`, "letter"},
	{"perl encode", `perl -MEncode -e 'print length encode("shift_jis", decode("utf8", "\xe3\x81\x82")),"\n"'`, "2"},
	{"perl json", `perl -MJSON::PP -e 'print JSON::PP->new->canonical->encode({a=>[1]}),"\n"'`, `{"a":[1]}`},
	{"python modules", `python3 -c 'import json,ssl,sqlite3,ctypes,zlib,bz2,lzma,hashlib,decimal;print(json.dumps({"a":1}))'`, `{"a": 1}`},
	{"python http", `python3 -c 'import asyncio,http.server,urllib.request,multiprocessing,venv,unittest;print("ok")'`, "ok"},
	{"python certificates", `python3 -c 'import ssl;c=ssl.create_default_context();c.load_default_certs();print(ssl.get_default_verify_paths().capath is not None)'`, "True"},
	{"python unicode", `python3 -c 'print("ä".encode())'`, `b'\xc3\xa4'`},
	{"python time zone", `python3 -c 'import zoneinfo,datetime;print(datetime.datetime(2024,7,1,tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")).utcoffset())'`, "2:00:00"},
	{"python sqlite", `python3 -c 'import sqlite3;print(sqlite3.connect(":memory:").execute("select 40+2").fetchone()[0])'`, "42"},
	{"curl", `curl --version`, "https"},
	{"curl file", `echo hi >/tmp/f; curl -s file:///tmp/f`, "hi"},
	{"curl certificates", `python3 -m http.server 8765 -b 127.0.0.1 -d /usr/lib/git-core >/dev/null 2>&1 & sleep 1; curl -s --retry 5 --retry-connrefused -o /dev/null -w '%{http_code}\n' http://localhost:8765/; kill %1`, "200"},
	{"wget", `wget --version`, "GNU Wget"},
	{"openssl digest", `printf a | openssl dgst -sha256`, "ca978112ca1bbdca"},
	{"openssl certificate", `cd /tmp && openssl req -x509 -newkey rsa:2048 -nodes -keyout k.pem -out c.pem -subj /CN=x -days 1 2>/dev/null && openssl x509 -in c.pem -noout -subject`, "CN = x"},
	{"locale", `locale -a`, "C.utf8"},
	{"utf-8 in sed", `echo äöü | LC_ALL=C.UTF-8 sed 's/./x/g'`, "xxx"},
	{"iconv", `echo ä | iconv -f utf-8 -t latin1 | od -An -tx1`, "e4 0a"},
	{"iconv japanese", `printf '\343\201\202' | iconv -f utf-8 -t shift_jis | od -An -tx1`, "82 a0"},
	{"time zone", `TZ=America/New_York date -d @0 +%H:%M%Z`, "19:00EST"},
	{"tput", `TERM=xterm-256color tput colors`, "256"},
	{"awk", `echo '1 2' | awk '{print $1+$2}'`, "3"},
	{"find and xargs", `mkdir -p /tmp/x && touch /tmp/x/a /tmp/x/b && find /tmp/x -type f -print0 | xargs -0 -n1 basename | sort | tr '\n' ' '`, "a b"},
	{"grep -P", `echo ab12 | grep -oP '\d+'`, "12"},
	{"tar and gzip", `cd /tmp && echo t>t && tar czf t.tgz t && tar tzf t.tgz`, "t"},
	{"tar and xz", `cd /tmp && echo t>t && tar cJf t.txz t && tar tJf t.txz`, "t"},
	{"tar and bzip2", `cd /tmp && echo t>t && tar cjf t.tbz t && tar tjf t.tbz`, "t"},
	{"zip", `cd /tmp && echo t>t && zip -q t.zip t && unzip -p t.zip`, "t"},
	{"ps", `ps aux | head -1; ps -o pid= -p 1`, "USER"},
	{"pgrep and kill", `sleep 60 & pgrep -x sleep >/dev/null && kill %1 && wait; echo done`, "done"},
	{"top", `top -bn1 | head -1`, "load average"},
	{"free", `free -m`, "Mem:"},
	{"file", `file -b /bin/bash; echo '{"a":1}' >/tmp/j; file -b /tmp/j`, "ELF 64-bit"},
	{"less", `echo hi | less -FX`, "hi"},
	{"diff and patch", `cd /tmp && echo a>p1 && echo b>p2; diff -u p1 p2 >p.diff; patch -s p1 p.diff && cat p1`, "b"},
	{"make", `cd /tmp && printf 'all:\n\t@echo made\n' >Makefile && make`, "made"},
	{"jq", `echo '{"a":[1,2]}' | jq -c .a`, "[1,2]"},
	{"bc", `echo '2^10' | bc`, "1024"},
	{"which", `which git`, "/bin/git"},
	{"script", `script -qec 'echo in a terminal' /dev/null`, "in a terminal"},
	{"setsid and flock", `setsid -w echo s; flock /tmp/l echo locked`, "locked"},
	{"timeout", `timeout 0.1 sleep 5; echo $?`, "124"},
	{"stdbuf", `stdbuf -oL echo unbuffered`, "unbuffered"},
	{"hostname and ip", `hostname >/dev/null && ip -o addr show lo`, "127.0.0.1"},
	{"ss", `ss -tln`, "State"},
	{"sha256sum", `printf a | sha256sum`, "ca978112ca1bbdca"},
	{"base64", `echo aGk= | base64 -d`, "hi"},
	{"shuf, seq, sort", `seq 3 | shuf | sort -n | paste -sd,`, "1,2,3"},
	{"mktemp", `mktemp -d`, "/tmp/tmp."},
	{"no setuid file", `find / -xdev -perm /6000 -type f; echo none`, "none"},
}

func TestHostUsage(t *testing.T) {
	r, _ := connect(t)
	host := hostImage(t, r)
	name := "sandboxbash-usage-test"
	dockertest.Cleanup(t, "rm", "-f", name)
	_, _ = dockertest.Command(t.Context(), "rm", "-f", name) // of a run that was killed
	dockertest.MustCommand(t, "run", "-d", "--init", "--name", name, "--network=none", "--read-only", "--cap-drop=ALL", "--user=1000:1000",
		"--tmpfs=/tmp:exec,mode=1777", "--tmpfs=/home/agent:uid=1000", "-e", "HOME=/home/agent", "-e", "LANG=C.UTF-8", string(host.ID), "sleep", "600")
	failed := 0
	for _, u := range usage {
		out, err := dockertest.Command(t.Context(), "exec", name, "bash", "-c", u.script)
		if err != nil || !strings.Contains(out, u.want) {
			failed++
			t.Errorf("%s: %s = %q, %v; want %q", u.name, u.script, out, err, u.want)
		}
	}
	t.Logf("%d of %d usage checks passed", len(usage)-failed, len(usage))
}
