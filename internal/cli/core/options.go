package core

import (
	"fmt"
	"strings"

	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/sink"
)

// OutputOptions says what is kept of a command's output.
func (a *App) OutputOptions() sink.Options {
	return sink.Options{
		Window: sink.Tail(int(a.Cfg.Output.Window)), Limit: a.Cfg.Output.Limit, Artifact: a.ArtifactMode(),
		Text: sink.Text{Return: sink.RewindReturn, Invisible: sink.ShowInvisible},
	}
}

// ArtifactMode says when a command's output is kept.
func (a *App) ArtifactMode() sink.ArtifactMode {
	modes := map[string]sink.ArtifactMode{"overflow": sink.OnOverflow, "always": sink.Always, "never": sink.Never}
	return modes[a.Cfg.Artifacts.Mode]
}

// StartNotes tells what the owner of a fresh session should know.
func (a *App) StartNotes(s *sandbox.Session) {
	for _, n := range s.Notes() {
		a.Note(n)
	}
	if left := s.LeftOut(); len(left) > 0 {
		a.Note("left out of the workspace, because they look like credentials: " + SomeOf(a.Names(left)))
	}
}

// maxNamed is how many names a note lists.
const maxNamed = 10

// SomeOf lists names, and says how many more there are.
func SomeOf(names []string) string {
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
}

// WorkspaceText writes a workspace as --workspace takes it.
func WorkspaceText(w sandbox.Workspace) string {
	if w.Kind == sandbox.WorkspaceVolume {
		return string(w.Kind)
	}
	text := string(w.Kind) + ":" + w.Dir
	if w.ReadOnly {
		text += ":ro"
	}
	return text
}
