package sandbox

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"

	"github.com/sandboxbash/sandboxbash/internal/transfer"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// A record says which files a session and this machine last had in common. It is kept in
// the session, so that every process that opens the session has it, and it is removed with
// the session. It is on the volume of uid 0 and sealed with the session's key, which no
// container has. See docs/adr/0024.

// copiedDir is the directory of the records.
const copiedDir = wire.JobsDir + "/copied"

// maxCopiedRecord is the size of the largest record, for as many files and names as a
// transfer allows.
const maxCopiedRecord = 96 << 20 // bytes

// copiedSlots is how many records a session keeps at most, besides that of its
// workspace. The hash of a pair selects its slot. A pair with the same slot replaces the
// record that was there.
const copiedSlots = 32

// ErrRecordAltered is the error of a record that this program has not written.
var ErrRecordAltered error = errAltered

// errAltered is returned for a record that this program has not written.
var errAltered = &hinted{hint: HintForce, error: errors.New("the record of what was copied has been altered by a command: " +
	"what changed here since is not known")}

// pair is a directory of this machine and a directory of the session, with files in common.
type pair struct {
	record string // the record's file name
	id     string // identifies the two directories without revealing them
	below  string // the directory in the record that holds the pair's files; "." is its top
}

// pairOf returns the pair of two directories. Directories at the same path in a copied
// workspace and in its source use the record of the workspace. Others use that of the first
// directories above them whose names differ: it is one record for a directory and for what
// is in it.
func (s *Session) pairOf(host, inside string) pair {
	host = resolved(host)
	if w := s.info.labels.Workspace; w.Kind == WorkspaceCopy {
		top := resolved(w.Dir)
		rel, err := filepath.Rel(top, host)
		if rel = filepath.ToSlash(rel); err == nil && filepath.IsLocal(rel) && path.Join(w.Target, rel) == inside {
			return pair{record: "workspace", id: s.pairID(top, w.Target), below: rel}
		}
	}
	below := "."
	for name := path.Base(inside); name != "/" && name == filepath.Base(host); name = path.Base(inside) {
		host, inside, below = filepath.Dir(host), path.Dir(inside), path.Join(name, below)
	}
	id := s.pairID(host, inside)
	return pair{record: fmt.Sprintf("pair%d", hashByte(id)%copiedSlots), id: id, below: below}
}

// resolved returns dir without symbolic links. If dir does not exist, only the part of it
// that exists is resolved.
func resolved(dir string) string {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return dir
	}
	for at, rest := abs, ""; ; at, rest = filepath.Dir(at), filepath.Join(filepath.Base(at), rest) {
		if target, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(target, rest)
		}
		if filepath.Dir(at) == at {
			return abs
		}
	}
}

func (s *Session) pairID(host, inside string) string {
	mac := hmac.New(sha256.New, s.info.key)
	fmt.Fprintf(mac, "%q %q %q", self().host, host, inside)
	return hex.EncodeToString(mac.Sum(nil))
}

func hashByte(id string) byte {
	b, _ := hex.DecodeString(id[:2]) // it is hex
	return b[0]
}

// sealCopied encodes and seals a record.
func (s *Session) sealCopied(id string, state transfer.State) []byte {
	body := state.Append([]byte(id))
	return append(s.macCopied(body), body...)
}

func (s *Session) macCopied(body []byte) []byte {
	mac := hmac.New(sha256.New, s.info.key)
	mac.Write([]byte("copied\x00"))
	mac.Write(body)
	return mac.Sum(nil)
}

// unsealed returns the body of what sealCopied or sealIndex has sealed.
func (s *Session) unsealed(b []byte) ([]byte, error) {
	if len(b) < sha256.Size || !hmac.Equal(s.macCopied(b[sha256.Size:]), b[:sha256.Size]) {
		return nil, errAltered
	}
	return b[sha256.Size:], nil
}

// openCopied decodes a record. If it is the record of another pair, the state is empty.
func (s *Session) openCopied(id string, b []byte) (transfer.State, error) {
	body, err := s.unsealed(b)
	if err != nil {
		return nil, err
	}
	state, ok := strings.CutPrefix(string(body), id)
	if !ok {
		return nil, nil
	}
	return transfer.ParseState([]byte(state))
}

// recall returns the state that was recorded for a pair, or nil if there is none. It
// returns errAltered if the record was not written by this program.
func (s *Session) recall(ctx context.Context, of pair) (transfer.State, error) {
	if s.info.key == nil {
		return nil, nil // a session of a version that kept no records
	}
	var record bytes.Buffer
	err := s.receiveAs(ctx, User{}, path.Join(copiedDir, of.record), func(_ transfer.Entry, r io.Reader) error {
		_, err := io.Copy(&limited{w: &record, left: maxCopiedRecord}, r)
		return err
	})
	if _, missing := errors.AsType[missingError](err); missing {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what was copied: %w", err)
	}
	return s.openCopied(of.id, record.Bytes())
}

// remember records what both sides have in common now. known is the state before; only a pair that is
// below the record's top needs it. kept are contents to keep with it, and may be nil.
func (s *Session) remember(ctx context.Context, of pair, known, now transfer.State, kept *texts) error {
	if s.info.key == nil || s.reading { // a reader writes nothing
		return nil
	}
	all := now.Under(of.below)
	if of.below != "." {
		for _, e := range known {
			if !strings.HasPrefix(e.Name, of.below+"/") {
				all = append(all, e)
			}
		}
		all = transfer.NewState(all)
	}
	if len(all) > transfer.DefaultLimits.Entries {
		all = nil // without a record, nothing is overwritten unless the caller forces it
	}
	return s.keepRecord(ctx, of, all, nil, kept)
}

// keepRecord writes a record, with the index of the directory of this machine and contents to keep
// with it. Both may be nil.
func (s *Session) keepRecord(ctx context.Context, of pair, state transfer.State, index transfer.Index, kept *texts) error {
	_, err := s.sendAs(ctx, User{}, copiedDir, func(t *transfer.Packer) error {
		err := t.Bytes(of.record, s.sealCopied(of.id, state))
		if err == nil && index != nil {
			err = t.Bytes(indexName(of), s.sealIndex(of.id, index))
		}
		if err == nil && kept != nil {
			err = kept.pack(t)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("keep what was copied: %w", err)
	}
	return nil
}

// rememberCopy records what was copied into a new workspace.
func (s *Session) rememberCopy(ctx context.Context, host, inside string, out *transfer.Packer) error {
	if s.info.key == nil {
		return nil // a session of a version that kept no records
	}
	kept, err := unknownTexts(ctx, host, out.Packed)
	if err != nil {
		return err
	}
	state, index := transfer.NewState(out.Packed), out.Stamps
	if len(state) > transfer.DefaultLimits.Entries {
		state, index = nil, nil // without a record, nothing is overwritten unless the caller forces it
	}
	return s.keepRecord(ctx, s.pairOf(host, inside), state, index, kept)
}

// common is what a directory of this machine and one of the session have in common now.
type common struct {
	host, inside string
	files        []transfer.Entry // by their names in both
}

// addCopied adds what was copied to the records.
func (s *Session) addCopied(ctx context.Context, copied []common) error {
	type top struct{ record, id string }
	var order []top
	added := map[top][]transfer.Entry{}
	for _, c := range copied {
		of := s.pairOf(c.host, c.inside)
		at := top{of.record, of.id}
		if _, ok := added[at]; !ok {
			order = append(order, at)
		}
		added[at] = append(added[at], transfer.State(c.files).Under(of.below)...)
	}
	for _, at := range order {
		of := pair{record: at.record, id: at.id, below: "."}
		known, err := s.recall(ctx, of)
		if err != nil && !errors.Is(err, errAltered) {
			return err
		}
		if err := s.remember(ctx, of, nil, transfer.NewState(append(known, added[at]...)), nil); err != nil {
			return err
		}
	}
	return nil
}
