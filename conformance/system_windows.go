package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
)

// readRest does nothing: a pipe is read to its end.
func readRest(*os.File, io.Writer) {}

// ownGroup does nothing: killGroup kills the tool alone.
func ownGroup(*exec.Cmd) {}

func killGroup(p *os.Process) error { return p.Kill() }

func interruptGroup(p *os.Process) error { return p.Signal(os.Interrupt) }

func exitCode(s *os.ProcessState) int { return s.ExitCode() }

func onTerminal(context.Context, *exec.Cmd, call) answer {
	return answer{problem: errors.New("this kit has no terminals on windows")}
}
