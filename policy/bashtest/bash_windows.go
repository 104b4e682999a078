package bashtest

import (
	"context"
	"errors"
)

// errNoBash is returned on Windows, where no process group can be killed as a whole.
var errNoBash = errors.New("scripts are compared with bash on Unix systems only")

// Bash runs scripts on Unix systems.
type Bash struct{}

// NewBash returns an error.
func NewBash() (*Bash, error) { return nil, errNoBash }

// Close does nothing.
func (b *Bash) Close() error { return nil }

// Version returns an error.
func (b *Bash) Version(context.Context) (string, error) { return "", errNoBash }

// Run returns an error.
func (b *Bash) Run(context.Context, string) ([][]string, error) { return nil, errNoBash }
