package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"os"
	"path"
	"slices"

	"github.com/sandboxbash/sandboxbash/internal/hostgit"
	"github.com/sandboxbash/sandboxbash/internal/merge"
	"github.com/sandboxbash/sandboxbash/internal/transfer"
)

// A merge needs what a file was when both sides were alike. For most files git on this machine has
// it. What git does not have is kept next to the record, if it is small: one file for each content, named
// by its hash, which the record vouches for. See docs/adr/0048.

// textsDir is the directory of these contents.
const textsDir = copiedDir + "/texts"

// Bounds of what one call adds to textsDir.
const (
	maxKeptText  = 64 << 10 // bytes of one file
	maxKeptTexts = 16 << 20 // bytes of all
	maxKeptFiles = 4096
)

// texts are contents to keep. The zero value is ready to use.
type texts struct {
	of    map[transfer.Sum][]byte
	bytes int
}

// keep takes a content, unless it is large, or no text.
func (t *texts) keep(content []byte) {
	sum := transfer.Sum(sha256.Sum256(content))
	if len(content) > maxKeptText || !merge.IsText(content) || t.of[sum] != nil || len(t.of) == maxKeptFiles || t.bytes+len(content) > maxKeptTexts {
		return
	}
	if t.of == nil {
		t.of = map[transfer.Sum][]byte{}
	}
	t.of[sum] = append([]byte{}, content...)
	t.bytes += len(content)
}

// pack packs all that is kept.
func (t *texts) pack(to *transfer.Packer) error {
	for _, sum := range slices.SortedFunc(maps.Keys(t.of), func(a, b transfer.Sum) int { return slices.Compare(a[:], b[:]) }) {
		if err := to.Bytes(path.Join(path.Base(textsDir), textName(sum)), t.of[sum]); err != nil {
			return err
		}
	}
	return nil
}

func textName(sum transfer.Sum) string { return hex.EncodeToString(sum[:]) }

// unknownTexts returns what was packed of a directory and is small, a text, and not in git here.
func unknownTexts(ctx context.Context, dir string, packed []transfer.Entry) (*texts, error) {
	unknown, all, err := hostgit.Unknown(ctx, dir)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	out := &texts{}
	for _, e := range packed {
		if e.Kind != transfer.File || e.Size > maxKeptText || e.Sum == nil || transfer.Repository(e.Name) || !all && !unknown[e.Name] {
			continue
		}
		if len(out.of) == maxKeptFiles || out.bytes == maxKeptTexts {
			break
		}
		b, err := transfer.ReadHere(root, e.Name, maxKeptText)
		if err == nil && sha256.Sum256(b) == *e.Sum { // else it has changed meanwhile
			out.keep(b)
		}
	}
	return out, nil
}

// former returns what files were, by name, as far as it is known: git here has it, or the session
// keeps it.
func (s *Session) former(ctx context.Context, dir string, was map[string]transfer.Sum) (map[string][]byte, error) {
	out := map[string][]byte{}
	err := hostgit.Contents(ctx, dir, slices.Sorted(maps.Keys(was)), merge.MaxText, func(name string, content []byte) {
		if sha256.Sum256(content) == was[name] {
			out[name] = content
		}
	})
	if err != nil || len(out) == len(was) {
		return out, err
	}
	named := map[string][]string{} // by the name of a text
	for name, sum := range was {
		if out[name] == nil {
			named[textName(sum)] = append(named[textName(sum)], name)
		}
	}
	err = s.pickAs(ctx, User{}, textsDir, slices.Sorted(maps.Keys(named)), func(e transfer.Entry, r io.Reader) error {
		content, err := io.ReadAll(io.LimitReader(r, maxKeptText))
		if err == nil && textName(sha256.Sum256(content)) == e.Name {
			for _, name := range named[e.Name] {
				out[name] = content
			}
		}
		return err
	})
	if _, missing := errors.AsType[missingError](err); missing {
		err = nil // nothing is kept
	}
	return out, err
}
