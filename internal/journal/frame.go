package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	frameMark  = 0x1e
	typeRecord = 'r'
	typeOutput = 'o'
	// maxBody bounds a frame's body in bytes. It holds a record with every byte of its texts escaped.
	maxBody = 2 << 20
	// maxHead is the longest head of a frame.
	maxHead = 2 + binary.MaxVarintLen32 + crcSize
	crcSize = 4
)

// Flags in the first byte of output.
const (
	streamMask  = 0x0f
	flagSkipped = 0x80 // the number of bytes left out follows the id
	flagTextID  = 0x40 // the id is a text behind its length, and not a UUID's 16 bytes
)

// castagnoli is made when it is first needed, to keep the start of the program cheap.
var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

var (
	// errPart means that the bytes are the start of a frame, so far.
	errPart = errors.New("the frame is not complete")
	// errDamaged means that no frame is there.
	errDamaged = errors.New("damaged")
)

// appendRecord appends the frame of a record.
func appendRecord(b []byte, r *Record) ([]byte, error) {
	if r.Kind == Output {
		return appendFrame(b, typeOutput, outputBody(r)), nil
	}
	body, err := json.Marshal(r)
	if err == nil && len(body) > maxBody {
		err = fmt.Errorf("a record of %d bytes; the limit is %d", len(body), maxBody)
	}
	if err != nil {
		return b, err
	}
	return appendFrame(b, typeRecord, body), nil
}

func appendFrame(b []byte, kind byte, body []byte) []byte {
	b = append(b, frameMark)
	head := len(b)
	b = append(b, kind)
	b = binary.AppendUvarint(b, uint64(len(body)))
	sum := crc32.Update(crc32.Checksum(b[head:], castagnoli()), castagnoli(), body)
	b = binary.LittleEndian.AppendUint32(b, sum)
	return append(b, body...)
}

func outputBody(r *Record) []byte {
	b := make([]byte, 0, len(r.Data)+48)
	flags := byte(r.Stream) & streamMask
	if r.Skipped > 0 {
		flags |= flagSkipped
	}
	id, err := uuid.Parse(r.ID)
	plain := err == nil && id.String() == r.ID // Parse accepts other forms too
	if !plain {
		flags |= flagTextID
	}
	b = append(b, flags)
	b = binary.AppendUvarint(b, uint64(max(0, r.Time.UnixMicro())))
	if plain {
		b = append(b, id[:]...)
	} else {
		b = binary.AppendUvarint(b, uint64(len(r.ID)))
		b = append(b, r.ID...)
	}
	if r.Skipped > 0 {
		b = binary.AppendUvarint(b, uint64(r.Skipped))
	}
	return append(b, r.Data...)
}

// splitFrame returns the first frame of b: its type, its body, which is a part of b, and its length in all.
func splitFrame(b []byte) (kind byte, body []byte, size int, err error) {
	if len(b) == 0 {
		return 0, nil, 0, errPart
	}
	if b[0] != frameMark {
		return 0, nil, 0, errDamaged
	}
	if len(b) < 3 {
		return 0, nil, 0, errPart
	}
	length, n := binary.Uvarint(b[2:min(len(b), maxHead)])
	switch {
	case n == 0 && len(b) < maxHead:
		return 0, nil, 0, errPart
	case n <= 0 || length > maxBody:
		return 0, nil, 0, errDamaged
	}
	at := 2 + n
	size = at + crcSize + int(length)
	if len(b) < size {
		return 0, nil, size, errPart
	}
	body = b[at+crcSize : size]
	sum := crc32.Update(crc32.Checksum(b[1:at], castagnoli()), castagnoli(), body)
	if sum != binary.LittleEndian.Uint32(b[at:]) {
		return 0, nil, 0, errDamaged
	}
	return b[1], body, size, nil
}

// parseBody reads a record from a frame's body, and reports whether it is one. The record keeps nothing of the body.
func parseBody(kind byte, body []byte) (Record, bool) {
	switch kind {
	case typeRecord:
		var r Record
		err := json.Unmarshal(body, &r)
		return r, err == nil && r.Kind != ""
	case typeOutput:
		return parseOutput(body)
	}
	return Record{}, false
}

func parseOutput(b []byte) (Record, bool) {
	c := cursor{rest: b}
	flags := c.bytes(1)
	if c.bad {
		return Record{}, false
	}
	r := Record{Kind: Output, Stream: Stream(flags[0] & streamMask), Time: time.UnixMicro(int64(c.number())).UTC()}
	if flags[0]&flagTextID != 0 {
		r.ID = string(c.bytes(c.number()))
	} else if id := c.bytes(16); !c.bad {
		r.ID = uuid.UUID(id).String()
	}
	if flags[0]&flagSkipped != 0 {
		r.Skipped = int64(c.number())
	}
	if c.bad || r.Skipped < 0 {
		return Record{}, false
	}
	r.Data = bytes.Clone(c.rest)
	return r, true
}

// cursor takes values from the start of a body.
type cursor struct {
	rest []byte
	bad  bool // there was not enough
}

func (c *cursor) number() uint64 {
	v, n := binary.Uvarint(c.rest)
	if n <= 0 {
		c.bad, c.rest = true, nil
		return 0
	}
	c.rest = c.rest[n:]
	return v
}

func (c *cursor) bytes(n uint64) []byte {
	if n > uint64(len(c.rest)) {
		c.bad, c.rest = true, nil
		return nil
	}
	b := c.rest[:n]
	c.rest = c.rest[n:]
	return b
}
