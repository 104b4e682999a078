package serve

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"time"
)

// A call that waits for an answer is parked under a request state, which the client sends back with the answer. The
// state says which parked call it is, until when, and which call may take it up: the same tool with the same
// arguments, its session among them. It is sealed with a key of this process. Each is taken once.

// binding identifies what a call asks for.
type binding = [sha256.Size]byte

// bind returns the binding of a call. Arguments that mean the same have the same.
func bind(tool string, arguments json.RawMessage) binding {
	dec := json.NewDecoder(bytes.NewReader(arguments))
	dec.UseNumber()
	var v any
	canonical := []byte(arguments)
	if dec.Decode(&v) == nil {
		if sorted, err := json.Marshal(v); err == nil {
			canonical = sorted
		}
	}
	head := sha256.Sum256([]byte("tools/call " + tool))
	return sha256.Sum256(append(head[:], canonical...))
}

// sealer seals request states.
type sealer struct{ aead cipher.AEAD }

func newSealer() *sealer {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	block, err := aes.NewCipher(key)
	if err == nil {
		var aead cipher.AEAD
		if aead, err = cipher.NewGCMWithRandomNonce(block); err == nil {
			return &sealer{aead: aead}
		}
	}
	panic(err) // the key has a length that AES has
}

// idBytes is the length of a parked call's id.
const idBytes = 16

// seal returns the state of a parked call.
func (s *sealer) seal(id string, until time.Time, b binding) string {
	plain := binary.BigEndian.AppendUint64([]byte(id), uint64(until.UnixNano()))
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, append(plain, b[:]...), nil))
}

// errState is the error for every state that does not open, whatever is wrong with it.
var errState = errors.New("requestState: it is not one of this server's for this call, was used before, or has expired; nothing was run again")

// open returns the id of the parked call that a state is for.
func (s *sealer) open(state string, now time.Time, b binding) (id string, err error) {
	sealed, err := base64.RawURLEncoding.DecodeString(state)
	if err != nil {
		return "", errState
	}
	plain, err := s.aead.Open(nil, nil, sealed, nil)
	if err != nil || len(plain) != idBytes+8+len(b) || !bytes.Equal(plain[idBytes+8:], b[:]) ||
		now.UnixNano() > int64(binary.BigEndian.Uint64(plain[idBytes:])) {
		return "", errState
	}
	return string(plain[:idBytes]), nil
}

func newStateID() string {
	id := make([]byte, idBytes)
	_, _ = rand.Read(id) // it never fails
	return string(id)
}
