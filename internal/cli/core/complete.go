package core

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/sandboxbash/sandboxbash/exec"
	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// noSpace are completions behind which a word goes on.
const noSpace = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace

// CompleteFlags gives the flags of a tree of commands that name images, sessions and workspaces
// their completion, where a command has not done so itself.
func (c *Connection) CompleteFlags(cmd *cobra.Command) {
	for name, complete := range map[string]cobra.CompletionFunc{
		"image": c.CompleteImages, "base": c.CompleteImages, "session": c.CompleteSessions, "workspace": completeWorkspace,
	} {
		if cmd.Flags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, complete) // an error if there is one already
		}
	}
	for _, child := range cmd.Commands() {
		c.CompleteFlags(child)
	}
}

// CompleteImages offers the images that are on the engine, and host.
func (c *Connection) CompleteImages(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	offers := []string{images.HostRef + "\ta snapshot of this machine's programs"}
	ctx, cancel := context.WithTimeout(cmd.Context(), CompleteTime)
	defer cancel()
	if c.cfg.Load(cmd) == nil {
		if r, err := c.Resolver(ctx); err == nil {
			list, _ := r.List(ctx) // without an engine there are none to offer
			for _, img := range list {
				for _, ref := range img.Refs {
					offers = append(offers, c.streams.Safe(ref)+"\t"+units.BytesSize(float64(img.Size)))
				}
			}
		}
	}
	return goingOn(offers, args, word), cobra.ShellCompDirectiveNoFileComp
}

// CompletePath offers sessions, each with a colon behind it, for a word [SESSION]:PATH and, behind the
// colon, the files and directories of the session. A session that has ended has none to offer.
func (c *Connection) CompletePath(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	ref, at, inside := strings.Cut(word, ":")
	if !inside {
		offers, directive := c.CompleteSessions(cmd, args, word)
		for i, offer := range offers {
			name, about, _ := strings.Cut(offer, "\t")
			offers[i] = name + ":\t" + about
		}
		return offers, directive | cobra.ShellCompDirectiveNoSpace
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), CompleteTime)
	defer cancel()
	if c.cfg.Load(cmd) != nil || c.secrets.Ready() != nil { // a name may hold a secret
		return nil, noSpace
	}
	dir, base := path.Split(at)
	var offers []string
	for _, name := range c.entries(ctx, ref, dir) {
		if strings.HasPrefix(name, ".") == strings.HasPrefix(base, ".") {
			offers = append(offers, ref+":"+dir+name)
		}
	}
	return goingOn(offers, nil, word), noSpace
}

// mostEntries bounds what is read of the names in a directory.
const mostEntries = 64 << 10 // bytes

// entries are the names in a directory of a session, each directory with a slash behind it. It is not a
// command of the user's: nothing notes that the session was used.
func (c *Connection) entries(ctx context.Context, ref, dir string) (names []string) {
	backend, images, err := c.Backend(ctx)
	if err != nil {
		return nil
	}
	sessions := sandbox.New(backend, images, sandbox.Options{Secrets: c.secrets.Known()})
	defer sessions.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it only lets go
	info, err := c.Find(ctx, sessions, ref)
	if err != nil || info.Kept != nil {
		return nil
	}
	s, err := sessions.Open(ctx, info.ID)
	if err != nil {
		return nil
	}
	res, err := s.Run(ctx, sandbox.Command{
		Script: `cd -- "${1:-.}" && ls -1Ap`, Args: []string{dir}, Shell: "sh", Timeout: CompleteTime,
		Output: sink.Options{Window: sink.Head(mostEntries), Artifact: sink.Never},
	})
	if err != nil || res.Reason != exec.Exited || res.Code != 0 {
		return nil
	}
	for name := range strings.Lines(res.Output.Stdout.Text()) {
		// The last one may be cut. A result's text has no control characters.
		if name, whole := strings.CutSuffix(name, "\n"); whole {
			names = append(names, name)
		}
	}
	return names
}

// completeWorkspace offers the kinds of workspaces and, behind copy: and bind:, directories.
func completeWorkspace(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	kind, at, ok := strings.Cut(word, ":")
	if !ok {
		return goingOn([]string{
			"copy:\ta copy of a directory", "bind:\ta directory of this machine itself", "volume\tan empty directory",
		}, nil, word), noSpace
	}
	dir, _ := filepath.Split(at)
	list, err := os.ReadDir(filepath.Join(dir, "."))
	if err != nil {
		return nil, noSpace
	}
	var offers []string
	for _, e := range list {
		if e.IsDir() {
			offers = append(offers, kind+":"+dir+e.Name()+string(filepath.Separator))
		}
	}
	return goingOn(offers, nil, word), noSpace
}

// CompleteArtifacts offers the ids of artifacts, each once.
func CompleteArtifacts(list []sink.Info, args []string, word string) []string {
	var offers []string
	for _, i := range list {
		if offer := i.ID + "\tof session " + i.Session; !slices.ContainsFunc(offers, func(o string) bool { return strings.HasPrefix(o, i.ID+"\t") }) {
			offers = append(offers, offer)
		}
	}
	return goingOn(offers, args, word)
}

// goingOn are the offers, each with a TAB and a description behind it or not, that go on from a word
// and were not given before.
func goingOn(offers, given []string, word string) []string {
	return slices.DeleteFunc(offers, func(offer string) bool {
		text, _, _ := strings.Cut(offer, "\t")
		return !strings.HasPrefix(text, word) || slices.Contains(given, text)
	})
}
