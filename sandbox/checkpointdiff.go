package sandbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"

	"github.com/sandboxbash/sandboxbash/internal/merge"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// CheckpointDiff is what differs between two states of a workspace.
type CheckpointDiff struct {
	// Files are sorted by path. Directories are listed if they were made, removed, or have another mode.
	Files []Change

	session *Session
	changes []wire.CheckpointChange // of Files
}

func (s *Session) checkpointDiff(changes []wire.CheckpointChange) *CheckpointDiff {
	d := &CheckpointDiff{session: s, Files: []Change{}}
	for _, c := range changes {
		if c.Was.Kind == "d" && c.Now.Kind == "d" && c.Was.Mode == c.Now.Mode {
			continue // its time
		}
		change := Change{Path: c.Path, Kind: "modified"}
		switch {
		case c.Was.Kind == "":
			change.Kind = "added"
		case c.Now.Kind == "":
			change.Kind = "deleted"
		case c.Was.Kind != c.Now.Kind:
			change.Kind = "type"
		}
		if c.Path == "" {
			change.Path = "."
		}
		d.Files, d.changes = append(d.Files, change), append(d.changes, c)
	}
	return d
}

// patchBatch is how many bytes of contents are asked for at once.
const patchBatch = 8 << 20

// Patch calls take with each changed file and link, sorted by path.
func (d *CheckpointDiff) Patch(ctx context.Context, take func(FileDiff) error) error {
	for at := 0; at < len(d.changes); {
		end, size := at, 0
		var sums []string
		var sizes []int
		for ; end < len(d.changes) && size < patchBatch; end++ {
			for _, e := range [2]wire.CheckpointEntry{d.changes[end].Was, d.changes[end].Now} {
				if shownContent(e) {
					sums, sizes = append(sums, e.Sum), append(sizes, int(e.Size))
					size += int(e.Size)
				}
			}
		}
		texts, err := d.session.checkpointContents(ctx, sums, sizes)
		if err != nil {
			return err
		}
		for ; at < end; at++ {
			if err := d.show(at, texts, take); err != nil {
				return err
			}
		}
	}
	return nil
}

// shownContent reports whether the content of a file is needed for a diff.
func shownContent(e wire.CheckpointEntry) bool {
	return e.Kind == "f" && e.Sum != "" && e.Size <= merge.MaxText
}

// checkpointContents reads contents, by their sums.
func (s *Session) checkpointContents(ctx context.Context, sums []string, sizes []int) (map[string][]byte, error) {
	texts := map[string][]byte{}
	if len(sums) == 0 {
		return texts, nil
	}
	all, err := s.checkpointVerb(ctx, wire.CheckpointAsk{Do: wire.CheckpointRead, Sums: sums}, patchBatch+2*merge.MaxText)
	if err != nil {
		return nil, fmt.Errorf("session %s: contents of a checkpoint: %w", s.ID(), err)
	}
	for i, sum := range sums {
		if len(all) < sizes[i] {
			return nil, errors.New("the contents of a checkpoint are cut")
		}
		var text []byte
		text, all = all[:sizes[i]:sizes[i]], all[sizes[i]:]
		if got := sha256.Sum256(text); string(got[:]) != sum {
			return nil, errors.New("the contents of a checkpoint are not those that were kept")
		}
		texts[sum] = text
	}
	return texts, nil
}

func (d *CheckpointDiff) show(i int, texts map[string][]byte, take func(FileDiff) error) error {
	c := d.changes[i]
	f := FileDiff{Change: d.Files[i], Was: checkpointFile(c.Was), Now: checkpointFile(c.Now)}
	if f.Was == nil && f.Now == nil {
		return nil // directories
	}
	var was, now []byte
	for _, side := range []struct {
		e    wire.CheckpointEntry
		text *[]byte
	}{{c.Was, &was}, {c.Now, &now}} {
		switch {
		case side.e.Kind != "f":
		case side.e.Sum == "":
			f.Note = "its content is not kept"
		case side.e.Size > merge.MaxText:
			f.Note = "too large to be shown"
		default:
			if *side.text = texts[side.e.Sum]; !merge.IsText(*side.text) {
				f.Note = "binary"
			}
		}
	}
	if f.Note == "" && c.Was == c.Now {
		f.Note = "only its time, or another name of it"
	}
	if f.Note == "" {
		f.Hunks, f.Added, f.Removed = merge.Unified(was, now)
	}
	return take(f)
}

func checkpointFile(e wire.CheckpointEntry) *FileState {
	switch e.Kind {
	case "f":
		return &FileState{Mode: fs.FileMode(e.Mode).Perm(), Size: int64(e.Size)}
	case "l":
		return &FileState{Mode: fs.ModeSymlink | 0o777, Target: e.Target}
	}
	return nil
}
