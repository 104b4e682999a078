package main

import "fmt"

// adversary is a way in which a command may try to survive. It runs until it is killed.
type adversary struct {
	row     string // of the threat model
	name    string
	script  string
	needs   string // a program that an image may lack
	arch    string // the only architecture on which its system calls have these numbers; empty: any
	violent bool   // it harms everything else in its session
}

// prelude starts a loop that makes a file grow as long as the loop lives. It carries the mark.
const prelude = `export M=%s; (while echo x >>/ws/grow-$M; do sleep 0.05; done) & `

// adversaries are the rows K that a command can do by itself. That a container is
// paused (K12) is the nemesis's; clients that go away (K16) are a way to end each of
// these.
var adversaries = []adversary{
	{row: "K1", name: "sleeps", script: `sleep 300`},
	{row: "K1", name: "waits for a child", script: `sleep 300 & wait`},
	{row: "K1", name: "floods its output", script: `yes $M`},
	{row: "K2", name: "ignores signals", script: `trap "" TERM INT HUP QUIT; while :; do sleep 0.01; done`},
	{row: "K2", name: "is busy and ignores signals", script: `trap "" TERM INT HUP QUIT; while :; do :; done`},
	{row: "K2", name: "two that start each other again", script: `r() { trap "" TERM; while :; do sleep 300 & wait $!; done; }; r & r & wait`},
	{row: "K2", name: "sends signals to its group", script: `trap "" TERM HUP; while :; do kill -TERM 0; kill -HUP 0; sleep 0.02; done`},
	{row: "K3", name: "setsid", script: `setsid sleep 300 & setsid -f sleep 300; sleep 300`},
	{row: "K3", name: "double fork", script: `(setsid bash -c 'trap "" TERM; (sleep 300; sleep 300) & sleep 300' &); sleep 300`},
	{row: "K3", name: "a deep tree", script: `d() { if [ "$1" -gt 0 ]; then (d $(($1-1)); :) ; else sleep 300; fi; :; }; d 12`},
	{row: "K3", name: "a daemon without a name, environment or descriptors", needs: "perl", script: `perl -e 'use POSIX; $0="x"; unless(fork){POSIX::setsid(); exit if fork; %ENV=(); $0="[kworker/0:1]"; POSIX::close($_) for 0..255; chdir "/"; sleep 300} sleep 300'`},
	{row: "K3", name: "a subreaper of its own", needs: "perl", arch: "amd64", script: `perl -e 'syscall(157,36,1); unless(fork){ unless(fork){setpgrp; sleep 300} exit} sleep 300'`},
	{row: "K3", name: "namespaces of its own", script: `unshare -Urpf sleep 300 & unshare -r sleep 300 || sleep 300`},
	{row: "K5", name: "nohup and disown", script: `nohup sleep 300 >/dev/null 2>&1 & disown; sleep 300`},
	{row: "K6", name: "its leader goes, a child keeps the output", script: `(trap "" TERM; sleep 300; sleep 300) & trap "exit 0" TERM; wait`},
	{row: "K6", name: "closes its output", script: `exec >&- 2>&- <&-; sleep 300 & exec sleep 300`},
	{row: "K6", name: "pipes into each other", script: `coproc sleep 300; cat <(sleep 300) | tee >(sleep 300) | cat`},
	{row: "K7", name: "stops itself", script: `kill -STOP $$`},
	{row: "K7", name: "stops its group", script: `sleep 300 & kill -STOP 0`},
	{row: "K7", name: "stops its runner and PID 1", script: `kill -STOP $PPID; kill -STOP 1; kill -KILL $PPID; sleep 300`},
	{row: "K7", name: "kills all that it may", script: `kill -KILL -1; (while echo x >>/ws/grow-$M; do sleep 0.05; done) & sleep 300`, violent: true},
	{row: "K10", name: "waits in vfork", needs: "perl", arch: "amd64", script: `perl -e 'syscall(58); sleep 300'`},
	{row: "K10", name: "traces its child", needs: "perl", arch: "amd64", script: `sleep 300 & perl -e 'syscall(101, 0x4206, $ARGV[0], 0, 0); sleep 300' $!`},
	{row: "K10", name: "many threads", needs: "python3", script: `python3 -c 'import threading,time; [threading.Thread(target=time.sleep,args=(300,)).start() for _ in range(20)]'`},
	{row: "K13", name: "writes later", script: `(sleep 2; echo late >>/ws/grow-$M) & disown; (setsid bash -c 'sleep 2; echo late >>/ws/grow-$M' &); sleep 300`},
	{row: "K13", name: "is called as a runner", script: `(exec -a '/.sandboxbash/runner serve' env -i sleep 300) & exec -a '/.sandboxbash/runner init' sleep 300`},
	{row: "K14", name: "a terminal inside", needs: "python3", script: `python3 -c 'import pty,signal; signal.signal(signal.SIGHUP,signal.SIG_IGN); pty.spawn(["sleep","300"])' & sleep 300`},
	{row: "K14", name: "script", needs: "script", script: `script -qc 'trap "" HUP TERM; sleep 300; sleep 300' /dev/null`},
	{row: "K14", name: "tmux", needs: "tmux", script: `tmux -L $M new -d 'trap "" HUP TERM; sleep 300; sleep 300'; sleep 300`},
	{row: "–", name: "its main thread ends, another goes on", needs: "python3", script: `python3 -c '
import os,threading,ctypes,time,signal
signal.signal(signal.SIGTERM,signal.SIG_IGN)
if os.fork():
    while True: time.sleep(1)
os.setsid()
if os.fork(): os._exit(0)
for f in (0,1,2): os.close(f)
def w():
    while True:
        with open("/ws/grow-"+os.environ["M"],"a") as f: f.write("x\n")
        time.sleep(.05)
threading.Thread(target=w).start()
ctypes.CDLL(None).pthread_exit(None)'`},
	{row: "–", name: "seizes every process that starts", needs: "python3", arch: "amd64", script: `python3 -c '
import ctypes,os,signal
signal.signal(signal.SIGTERM,signal.SIG_IGN)
libc=ctypes.CDLL(None)
def last(): return int(open("/proc/loadavg").read().split()[-1])
seen=last()
while True:
    now=last()
    for pid in range(seen+1,now+4):
        if pid!=os.getpid(): libc.ptrace(0x4206,pid,0,0x100010)
    if now-20>seen: seen=now-20' & sleep 300`, violent: true},
	{row: "–", name: "hops: forks and ends", needs: "perl", script: hopper(1, "")},
	{row: "–", name: "hops in three lanes", needs: "perl", script: hopper(3, "")},
	{row: "–", name: "hops and clears its name", needs: "perl", script: hopper(1, `$0 = "x"; %ENV = ();`)},
	{row: "–", name: "hops among idle leftovers", needs: "perl", violent: true, script: `perl -e 'for (1..300) { if (!fork) { $SIG{TERM}="IGNORE"; sleep 300; exit } } sleep 300' & ` + hopper(1, "")},
	{row: "–", name: "hops and continues what is stopped", needs: "perl", violent: true, script: hopper(2, `kill "CONT", -1 if $n % 7 == 0;`)},
	{row: "–", name: "forks faster than /proc is read", script: `f() { sleep 0.01; f & }; f & f & f & f & sleep 300`, violent: true},
	{row: "–", name: "forks to the limit", script: `b() { b | b & }; b 2>/dev/null; sleep 300`, violent: true},
}

// hopper is a process that forks and ends in a loop, in so many lanes: no list that takes
// time to read has it. Each is code of perl for every hop. It lets its file grow itself.
func hopper(lanes int, each string) string {
	return fmt.Sprintf(`perl -e 'use POSIX; $SIG{TERM}=$SIG{HUP}=$SIG{CHLD}="IGNORE"; open F, ">>", "/ws/grow-$ENV{M}";
	if (fork) { sleep 300 while 1 } setsid(); POSIX::close($_) for 0..2; for (2..%d) { last if !fork }
	for ($n = 1; ; $n++) { my $p = fork; POSIX::_exit(0) if $p; %s syswrite F, "x\n" if $n %% 50 == 0 }'`, lanes, each)
}
