package cli

import (
	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/internal/cli/core"
)

// StatusText is the topic of help about exit statuses.
const StatusText = statusText

// Page is the help of a command in lines of a width.
var Page = page

// Tree is the whole tree of commands.
func Tree() *cobra.Command { return (&program{core.New("", nil, nil, nil, nil)}).root() }
