package cli

import "github.com/spf13/cobra"

// RootLong is the program's help.
const RootLong = rootLong

// Tree is the whole tree of commands.
func Tree() *cobra.Command { return newProgram("", nil, nil, nil, nil).root() }
