package core

import (
	"context"
	"errors"
	"os"
)

var errNoQuestions = errors.New("questions on a terminal are not there on Windows")

func openTerminal() (*os.File, error) { return nil, errNoQuestions }

type keyboard struct{}

func openKeyboard(context.Context, *os.File) (*keyboard, error) { return nil, errNoQuestions }

func (*keyboard) close() {}

func (*keyboard) next(context.Context, func()) (byte, error) { return 0, errNoQuestions }
