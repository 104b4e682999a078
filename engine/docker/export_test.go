package docker

import "github.com/sandboxbash/sandboxbash/engine"

// Copier fills volumes.
type Copier = copier

// NewCopier returns one that fills them with a runner of the test's own, so that a test
// does not touch the volume that sessions on the same engine use.
func NewCopier(c *Client, runner func(arch string) (engine.Content, error)) *Copier {
	return newCopier(c, runner)
}
