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
// workspace and in its source use the record of the workspace.
func (s *Session) pairOf(host, inside string) pair {
	host = resolved(host)
	if w := s.info.labels.Workspace; w.Kind == WorkspaceCopy {
		top := resolved(w.Dir)
		rel, err := filepath.Rel(top, host)
		if rel = filepath.ToSlash(rel); err == nil && filepath.IsLocal(rel) && path.Join(w.Target, rel) == inside {
			return pair{record: "workspace", id: s.pairID(top, w.Target), below: rel}
		}
	}
	id := s.pairID(host, inside)
	return pair{record: fmt.Sprintf("pair%d", hashByte(id)%copiedSlots), id: id, below: "."}
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

// openCopied decodes a record. If it is the record of another pair, the state is empty.
func (s *Session) openCopied(id string, b []byte) (transfer.State, error) {
	if len(b) < sha256.Size || !hmac.Equal(s.macCopied(b[sha256.Size:]), b[:sha256.Size]) {
		return nil, errAltered
	}
	state, ok := strings.CutPrefix(string(b[sha256.Size:]), id)
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

// remember records what both sides have in common now. known is the state before.
func (s *Session) remember(ctx context.Context, of pair, known, now transfer.State) error {
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
	record := s.sealCopied(of.id, all)
	_, err := s.sendAs(ctx, User{}, copiedDir, func(t *transfer.Packer) error { return t.Bytes(of.record, record) })
	if err != nil {
		return fmt.Errorf("keep what was copied: %w", err)
	}
	return nil
}

// rememberCopy records what was copied into a new workspace.
func (s *Session) rememberCopy(ctx context.Context, host, inside string, packed []transfer.Entry) error {
	of := s.pairOf(host, inside)
	return s.remember(ctx, of, nil, transfer.NewState(packed))
}

// rememberPush adds what was pushed to the record.
func (s *Session) rememberPush(ctx context.Context, src, inside string, packed []transfer.Entry) error {
	abs, err := filepath.Abs(src)
	if err != nil {
		return err
	}
	of := s.pairOf(filepath.Dir(abs), inside)
	known, err := s.recall(ctx, of)
	if err != nil && !errors.Is(err, errAltered) {
		return err
	}
	return s.remember(ctx, of, known, transfer.NewState(append(known.Below(of.below), packed...)))
}
