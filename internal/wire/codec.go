package wire

import (
	"encoding/binary"
	"fmt"
	"time"
)

// message is what has fields to send. fields visits each of them once, in the order
// of the encoding; the same method serves both directions.
//
// Fields are never removed or reordered. A new field goes to the end, behind a call
// of since: a peer of the version before neither sends nor takes it.
type message interface {
	fields(c *codec)
}

// encode appends the message's encoding to dst.
func encode(dst []byte, m message) []byte { return encodeFor(Version, dst, m) }

// encodeFor is encode for a peer that speaks the version.
func encodeFor(version uint64, dst []byte, m message) []byte {
	c := codec{b: dst, version: version}
	m.fields(&c)
	return c.b
}

// decode fills the message from its encoding. It returns an error that wraps ErrFrame
// for bytes that are not the fields' encoding. What stands behind the last field is
// ignored: a later version sends it. Byte slices are parts of b.
func decode(b []byte, m message) error {
	c := codec{b: b, reading: true}
	m.fields(&c)
	return c.err
}

// codec visits fields, either to append them to b or to take them off it. Every
// method leaves the field as it is when it appends, and sets it when it reads.
type codec struct {
	b       []byte // when appending: what there is; when reading: what is left
	reading bool
	version uint64 // when appending: the peer's
	err     error  // the first error of reading; every field after it is zero
}

// since reports whether the fields that follow take part, which a version has brought:
// when appending if the peer speaks that version, and when reading if it has sent any.
func (c *codec) since(version uint64) bool { //nolint:unparam // version 5 is the first to have brought any
	if c.reading {
		return c.err == nil && len(c.b) > 0
	}
	return c.version >= version
}

func (c *codec) fail(what string) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: %s", ErrFrame, what)
	}
	c.b = nil
}

func (c *codec) uint(v *uint64) {
	if !c.reading {
		c.b = binary.AppendUvarint(c.b, *v)
		return
	}
	wide, n := binary.Uvarint(c.b)
	if n <= 0 {
		*v = 0
		c.fail("bad number")
		return
	}
	*v, c.b = wide, c.b[n:]
}

// number is uint for a type of its own, and for narrower integers. A value that the
// type cannot hold is an error.
func number[T ~uint64 | ~uint32](c *codec, v *T) {
	wide := uint64(*v)
	c.uint(&wide)
	*v = T(wide)
	if uint64(*v) != wide {
		*v = 0
		c.fail("number out of range")
	}
}

func (c *codec) int(v *int) {
	if !c.reading {
		c.b = binary.AppendVarint(c.b, int64(*v))
		return
	}
	wide, n := binary.Varint(c.b)
	if n <= 0 || int64(int(wide)) != wide {
		*v = 0
		c.fail("bad number")
		return
	}
	*v, c.b = int(wide), c.b[n:]
}

func (c *codec) bool(v *bool) {
	switch {
	case !c.reading && *v:
		c.b = append(c.b, 1)
	case !c.reading:
		c.b = append(c.b, 0)
	case len(c.b) == 0 || c.b[0] > 1:
		*v = false
		c.fail("bad boolean")
	default:
		*v, c.b = c.b[0] == 1, c.b[1:]
	}
}

func (c *codec) byte(v *byte) {
	switch {
	case !c.reading:
		c.b = append(c.b, *v)
	case len(c.b) == 0:
		*v = 0
		c.fail("byte beyond the end")
	default:
		*v, c.b = c.b[0], c.b[1:]
	}
}

// bytes reads a part of the codec's memory.
func (c *codec) bytes(v *[]byte) {
	n := uint64(len(*v))
	c.uint(&n)
	if !c.reading {
		c.b = append(c.b, *v...)
		return
	}
	if n > uint64(len(c.b)) {
		*v = nil
		c.fail("length beyond the end")
		return
	}
	*v, c.b = c.b[:n:n], c.b[n:]
}

func (c *codec) string(v *string) {
	if !c.reading {
		n := uint64(len(*v))
		c.uint(&n)
		c.b = append(c.b, *v...)
		return
	}
	var b []byte
	c.bytes(&b)
	*v = string(b)
}

func (c *codec) strings(v *[]string) {
	n := uint64(len(*v))
	c.uint(&n)
	if c.reading {
		*v = nil
		if n > uint64(len(c.b)) { // each takes a byte at least
			c.fail("count beyond the end")
			return
		}
		if n > 0 {
			*v = make([]string, n)
		}
	}
	for i := range *v {
		c.string(&(*v)[i])
	}
}

func (c *codec) duration(v *time.Duration) {
	n := int(*v)
	c.int(&n)
	*v = time.Duration(n)
}

// time is to the nanosecond, and UTC when read.
func (c *codec) time(v *time.Time) {
	n := 0
	if !c.reading {
		n = int(v.UnixNano())
	}
	c.int(&n)
	if c.reading {
		*v = time.Unix(0, int64(n)).UTC()
	}
}
