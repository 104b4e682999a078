package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// Changes are what a session has changed in its copy of a directory of this machine.
type Changes interface {
	// Diff calls each with the changed files, sorted by path. What git would say of commits is returned.
	Diff(ctx context.Context, each func(sandbox.FileDiff) error) (repository string, err error)
	// CheckShown says what ApplyShown would do.
	CheckShown(ctx context.Context, shown []sandbox.FileDiff) (sandbox.Applied, error)
	// ApplyShown brings files that Diff has shown to the directory, unless the session has changed them since.
	ApplyShown(ctx context.Context, shown []sandbox.FileDiff) (sandbox.Applied, error)
	Dir() string // of this machine
	// Name and Clean make a name and a text fit to be shown, with secrets masked.
	Name(text string) string
	Clean(text string) string
}

// maxDiff bounds the text of a diff.
const maxDiff = 48 << 10 // bytes

const diffDescription = `Show what was changed in the sandbox's workspace since it was copied from the user's directory, as a unified diff. This is what apply would bring there. Without paths, everything.`

const applyDescription = `Bring what was changed in the sandbox's workspace to the user's directory. The user is asked first, and sees the list of files; nothing is written before. All of it is written or nothing; the user's own edits stay and are merged. Say what the change is for in reason.`

const pathsSchema = `"paths": {"type": "array", "items": {"type": "string"}, "description": "Files and directories, relative to the workspace. Default: everything."}`

const diffSchema = `{
  "type": "object",
  "properties": {
    ` + pathsSchema + `,
    "stat": {"type": "boolean", "description": "Only the names, and how many lines were changed."}
  },
  "additionalProperties": false
}`

const applySchema = `{
  "type": "object",
  "properties": {
    ` + pathsSchema + `,
    "reason": {"type": "string", "maxLength": 512, "description": "For the user: what the change does."}
  },
  "additionalProperties": false
}`

// needsCopy says why a tool for changes does not fit.
func needsCopy(o Options) string {
	switch o.Session.Workspace.Kind {
	case sandbox.WorkspaceCopy:
		return ""
	case sandbox.WorkspaceBind:
		return "the workspace is the user's directory itself (bind), so there is nothing to compare or to apply"
	default:
		return "it compares with the directory that was copied: use --workspace copy:DIR"
	}
}

func diffTool() mcpTool {
	return mcpTool{name: diffName, title: "Show what the sandbox has changed", description: diffDescription, schema: json.RawMessage(diffSchema), does: reads, fits: needsCopy, check: fields[changedPaths], do: diff}
}

func applyTool() mcpTool {
	return mcpTool{name: applyName, title: "Apply the changes to your directory", description: applyDescription, schema: json.RawMessage(applySchema), does: applies, fits: needsCopy, check: fields[changedPaths], do: apply}
}

// changedPaths are the arguments of both tools.
type changedPaths struct {
	Paths  []string `json:"paths"`
	Stat   bool     `json:"stat"`
	Reason string   `json:"reason"`
}

// has reports whether a file is wanted.
func (a changedPaths) has(name string) bool {
	return len(a.Paths) == 0 || slices.ContainsFunc(a.Paths, func(p string) bool {
		p = path.Clean(p)
		return p == "." || name == p || strings.HasPrefix(name, p+"/")
	})
}

// changesOf reads the arguments, and returns the part of the session that both tools use.
func changesOf(c *mcpCall) (Changes, changedPaths, error) {
	a, err := decode[changedPaths](c.arguments)
	if err != nil {
		return nil, a, err
	}
	of, err := part(c.session.Changes, "copy of a directory")
	return of, a, err
}

// statLine is one changed file in a list.
func statLine(of Changes, f sandbox.FileDiff) string {
	letter := map[string]string{"added": "A", "modified": "M", "deleted": "D", "type": "T"}[f.Kind]
	counts := fmt.Sprintf("+%d -%d", f.Added, f.Removed)
	if f.Note != "" {
		counts = f.Note
	}
	by := ""
	if f.By == sandbox.ChangedByBoth {
		by = "; changed by the user, too"
	}
	return fmt.Sprintf("%s %s (%s%s)", letter, of.Name(f.Path), counts, by)
}

func diff(c *mcpCall) (toolAnswer, error) {
	of, a, err := changesOf(c)
	if err != nil {
		return toolAnswer{}, err
	}
	var list, lines strings.Builder
	files, added, removed, cut := 0, 0, 0, 0
	repository, err := of.Diff(c.ctx, func(f sandbox.FileDiff) error {
		if !a.has(f.Path) {
			return nil
		}
		files, added, removed = files+1, added+f.Added, removed+f.Removed
		if list.Len() < maxDiff/4 {
			fmt.Fprintln(&list, statLine(of, f))
		} else {
			cut++
		}
		if !a.Stat && lines.Len() <= maxDiff {
			lines.WriteString(f.Unified(of.Name, of.Clean))
		}
		return nil
	})
	if err != nil {
		return toolAnswer{}, changesError(err)
	}
	if files == 0 {
		text := "Nothing was changed."
		if repository != "" {
			text += "\n.git: " + of.Name(repository)
		}
		return toolAnswer{text: text}, nil
	}
	text := list.String()
	if cut > 0 {
		text += fmt.Sprintf("and %s\n", plural(cut, "more file"))
	}
	text += fmt.Sprintf("%s, +%d -%d\n", plural(files, "file"), added, removed)
	if repository != "" {
		text += ".git: " + of.Name(repository) + "\n"
	}
	if all := lines.String(); all != "" {
		if len(all) > maxDiff {
			all = strings.ToValidUTF8(all[:maxDiff], "") + "\n[cut: name paths to see the rest]\n"
		}
		text += "\n" + all
	}
	return toolAnswer{text: strings.TrimSuffix(text, "\n")}, nil
}

// changesError words what can go wrong when a workspace is compared or applied.
func changesError(err error) error {
	var clash *sandbox.ApplyConflictError
	switch {
	case errors.As(err, &clash):
		return failure(KindFile, "%v. Nothing was written: the user has changed these files, too, and they cannot be merged. Apply other paths, or tell the user", err)
	case errors.Is(err, sandbox.ErrNotRecorded):
		return failure(KindUnavailable, "what was changed is not known: the workspace was not copied from a directory")
	}
	return err
}

// applyForm is the form of the question before an apply.
const applyForm = `{
  "type": "object",
  "properties": {
    "answer": {"type": "string", "title": "Apply these changes?", "enum": ["no", "yes"], "default": "no"}
  },
  "required": ["answer"]
}`

// maxAskedFiles is how many files a question names.
const maxAskedFiles = 20

func apply(c *mcpCall) (toolAnswer, error) {
	of, a, err := changesOf(c)
	if err != nil {
		return toolAnswer{}, err
	}
	if a.Stat {
		return toolAnswer{}, badParams("stat is for diff")
	}
	var shown []sandbox.FileDiff
	var list []string
	added, removed := 0, 0
	if _, err := of.Diff(c.ctx, func(f sandbox.FileDiff) error {
		if !a.has(f.Path) {
			return nil
		}
		added, removed = added+f.Added, removed+f.Removed
		if len(shown) < maxAskedFiles {
			list = append(list, statLine(of, f))
		}
		f.Hunks = nil
		shown = append(shown, f)
		return nil
	}); err != nil {
		return toolAnswer{}, changesError(err)
	}
	if len(shown) == 0 {
		return toolAnswer{text: "Nothing was changed, so there is nothing to apply."}, nil
	}
	plan, err := of.CheckShown(c.ctx, shown)
	if err != nil {
		return toolAnswer{}, changesError(err)
	}
	if !c.canAsk {
		return toolAnswer{}, failure(KindUnavailable, "this client cannot ask its user, so nothing was written. Tell the user to run `sandboxbash session apply %s`", c.session.ID)
	}
	text := fmt.Sprintf("Apply %s (+%d -%d) from the sandbox to %s?\n", plural(len(shown), "changed file"), added, removed, of.Name(of.Dir()))
	if a.Reason != "" {
		text += "The agent's reason, in its own words: " + printable(of.Clean(a.Reason)) + "\n"
	}
	text += strings.Join(list, "\n")
	if more := len(shown) - len(list); more > 0 {
		text += fmt.Sprintf("\nand %s", plural(more, "more file"))
	}
	if len(plan.Runs) > 0 {
		text += "\nPrograms of this machine may run what these say; look at them first: " + namesOf(of, plan.Runs)
	}
	answer, inTime := c.askUser(question{text: text, schema: applyForm})
	switch {
	case !inTime:
		return toolAnswer{isError: true, text: "The user did not answer in time, which is a no: nothing was written."}, nil
	case answer != "yes":
		return toolAnswer{isError: true, text: "The user said no: nothing was written. Ask what to do instead."}, nil
	}
	done, err := of.ApplyShown(c.ctx, shown)
	if err != nil {
		return toolAnswer{}, changesError(err)
	}
	return toolAnswer{text: appliedText(of, done)}, nil
}

// appliedText words what was applied.
func appliedText(of Changes, done sandbox.Applied) string {
	merged := 0
	for _, ch := range done.Changes {
		if ch.By == sandbox.ChangedByBoth {
			merged++
		}
	}
	text := fmt.Sprintf("Applied %s to %s.", plural(len(done.Changes), "change"), of.Name(of.Dir()))
	if merged > 0 {
		text += fmt.Sprintf(" %s merged with edits of the user.", plural(merged, "file"))
	}
	for _, l := range []struct {
		head  string
		names []string
	}{
		{"Left out: ", done.LeftOut},
		{"Deleted here, but kept there because of the user's own files: ", done.Kept},
		{"Programs of the user's machine may run what these say; tell the user to look at them: ", done.Runs},
	} {
		if len(l.names) > 0 {
			text += "\n" + l.head + namesOf(of, l.names)
		}
	}
	return text
}

// namesOf lists names, as many as a question names.
func namesOf(of Changes, all []string) string {
	names := make([]string, 0, maxAskedFiles)
	for _, n := range all[:min(len(all), maxAskedFiles)] {
		names = append(names, of.Name(n))
	}
	text := strings.Join(names, ", ")
	if more := len(all) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
