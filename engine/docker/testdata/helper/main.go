// Command helper is the only program in the image of the engine tests.
package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func main() {
	switch os.Args[1] {
	case "wait": // until SIGTERM
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGTERM)
		<-stop
		os.Exit(7)
	case "cat":
		_, _ = io.Copy(os.Stdout, os.Stdin)
	case "both":
		fmt.Fprint(os.Stdout, "to stdout")
		fmt.Fprint(os.Stderr, "to stderr")
	case "exit":
		code, _ := strconv.Atoi(os.Args[2])
		os.Exit(code)
	case "flood":
		size, _ := strconv.Atoi(os.Args[2])
		block := []byte(strings.Repeat("0123456789abcdef", 4096))
		for ; size > 0; size -= len(block) {
			_, _ = os.Stdout.Write(block[:min(size, len(block))])
		}
	case "winsize": // when a line comes
		_, _ = os.Stdin.Read(make([]byte, 16))
		ws, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
		fmt.Println(ws, err)
	case "look":
		look()
	}
}

// look prints how the process was set up.
func look() {
	dir, _ := os.Getwd()
	fmt.Println("cwd", dir)
	fmt.Println("args", os.Args)
	fmt.Println("env", os.Environ())
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		for _, key := range []string{"Uid:", "CapEff:", "CapBnd:", "NoNewPrivs:", "Seccomp:"} {
			if strings.HasPrefix(line, key) {
				fmt.Print(line)
			}
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		fmt.Println("mount", f[4], f[5], f[len(f)-1])
	}
	_, _, errno := syscall.RawSyscall(syscall.SYS_SETHOSTNAME, 0, 0, 0)
	fmt.Println("sethostname", int(errno))
	var limit syscall.Rlimit
	_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	fmt.Println("nofile", limit.Max) // Go raises the soft limit by itself
}
