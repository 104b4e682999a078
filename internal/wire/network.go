package wire

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"
)

// A runner of VerbNet carries connections of the session to the host, and of the host to
// the session, as streams on its standard input and output. The frames have the header of
// all frames, and types of their own. The payload of most begins with the number of a
// stream, four bytes big-endian. Package mux has both ends; in order:
//
//	runner  NetHello                  once, before anything else
//	host    NetOpen                   once, the answer
//	both    NetNew                    a stream, or a request of the host's about a listener
//	runner  NetAnswer                 the answer to such a request
//	both    NetData…, NetEnd          within the credit that NetCredit has given
//	both    NetReset                  both directions of the stream are over
//	both    NetDatagram               to and from port 53; the number is that of the question
//	both    NetPing                   at any time; answered by NetPong
//
// Streams that the runner begins have odd numbers, and the host's are even. Numbers grow
// and are not used again. A stream needs no answer: data may follow NetNew at once, and a
// refusal is a NetReset.

// NetVersion is the version of the frames of VerbNet, and OldestNetVersion the oldest that
// a host speaks.
const (
	NetVersion       = 1
	OldestNetVersion = 1
)

// NetLarge is the feature of a runner that takes a NetData of NetLargeFrame bytes: the fewer
// frames, the less work for each byte. A runner's own frames have NetFrame bytes at most.
const NetLarge = "large-data"

// Frames of VerbNet.
const (
	NetHelloType    Type = 'H' // NetHello: the runner's first frame
	NetOpenType     Type = 'o' // NetOpen: the host's first frame
	NetNewType      Type = 'N' // NetNew
	NetAnswerType   Type = 'A' // NetAnswer
	NetDataType     Type = 'D' // number, bytes
	NetEndType      Type = 'E' // number: no more bytes in this direction
	NetResetType    Type = 'R' // NetReset
	NetCreditType   Type = 'W' // NetCredit
	NetDatagramType Type = 'U' // number, bytes
	NetPingType     Type = 'p' // no payload
	NetPongType     Type = 'P' // no payload
	NetOwnerType    Type = 'I' | optional
)

const (
	// NetFrame bounds a frame of VerbNet in bytes, its header included: an engine carries
	// output in pieces of 32 KiB.
	NetFrame = 32<<10 - 64
	// NetData bounds the bytes in a NetData.
	NetData = NetFrame - NetDataHeader
	// NetLargeFrame bounds the frames of a host whose runner has the feature NetLarge.
	NetLargeFrame = 4 * NetFrame
	// NetDataHeader is the size of what stands before the bytes of a NetData.
	NetDataHeader = HeaderSize + 4
	// MaxDatagram bounds the bytes in a NetDatagram. Resolvers ask for answers of at most
	// 4096 bytes.
	MaxDatagram = 4 << 10
)

// NetKind says what a NetNew asks for.
type NetKind byte

// Kinds.
const (
	NetProxy    NetKind = 1 // runner to host: a connection to the proxy's listener
	NetNamed    NetKind = 2 // runner to host: a connection to a listener that the host asked for
	NetDNS      NetKind = 3 // runner to host: a connection to the name server's port
	NetDial     NetKind = 4 // host to runner: connect to 127.0.0.1, port Local
	NetListen   NetKind = 5 // host to runner: listen at Local; answered
	NetUnlisten NetKind = 6 // host to runner: close that listener; answered
)

// NetReason says why a stream was reset.
type NetReason byte

// Reasons.
const (
	NetClosed  NetReason = 1 // closed by the peer while data was on its way or unread
	NetBroken  NetReason = 2 // the connection beyond the peer broke
	NetRefused NetReason = 3 // nothing accepts the connection there
	NetFull    NetReason = 4 // too many streams
	NetCut     NetReason = 5 // ended by the host although it worked, as when it is denied
	NetTimeout NetReason = 6 // it took too long
)

// NetHello is the runner's first frame.
type NetHello struct {
	Version  uint64
	PID      int      // of the runner, in the container
	Features []string // what it can do besides what its version says
}

// Known returns an error unless a host of this NetVersion can speak with the runner.
func (m NetHello) Known() error {
	if m.Version < OldestNetVersion || m.Version > NetVersion {
		return fmt.Errorf("%w: the session's runner speaks version %d of the network's protocol, this program %d to %d: "+
			"use the program that started the session, or start another session", ErrFrame, m.Version, OldestNetVersion, NetVersion)
	}
	return nil
}

// NetOpen is the host's first frame, the answer to NetHello.
type NetOpen struct {
	Version uint64 // that of the NetHello
	// Lease is how long the runner keeps streams without a frame from the host.
	Lease time.Duration
	UID   uint32 // of the session's commands
}

// NetNew is a new stream, or a request about a listener.
type NetNew struct {
	ID     uint32
	Kind   NetKind
	Local  netip.AddrPort // of the socket in the session; IPv4
	Remote netip.AddrPort // of its peer in the session; IPv4, and zero if there is none
}

// NetAnswer answers a NetNew of kind NetListen or NetUnlisten.
type NetAnswer struct {
	ID    uint32
	Errno uint32 // as Linux numbers errors; 0 for none
}

// NetCredit allows more data.
type NetCredit struct {
	ID    uint32
	Bytes uint32 // in addition to what was allowed before
}

// NetReset ends both directions of a stream.
type NetReset struct {
	ID     uint32
	Reason NetReason
}

// NetOwner says which process of the session has the other end of a stream's connection.
type NetOwner struct {
	ID      uint32
	PID     int
	Session int // its session ID, which is the pid of its command's shell
	Runner  int // pid of the runner that runs the command; 0 if the process has outlived it
}

func (m *NetHello) fields(c *codec) {
	magic := Magic
	c.string(&magic)
	if c.reading && c.err == nil && magic != Magic {
		c.fail(fmt.Sprintf("not a runner's greeting: %.40q", magic))
	}
	c.uint(&m.Version)
	c.int(&m.PID)
	c.strings(&m.Features)
}

func (m *NetOpen) fields(c *codec) {
	c.uint(&m.Version)
	c.duration(&m.Lease)
	number(c, &m.UID)
}

func (m *NetNew) fields(c *codec) {
	c.fixed(&m.ID)
	c.byte((*byte)(&m.Kind))
	c.addrPort(&m.Local)
	c.addrPort(&m.Remote)
}

func (m *NetAnswer) fields(c *codec) {
	c.fixed(&m.ID)
	number(c, &m.Errno)
}

func (m *NetCredit) fields(c *codec) {
	c.fixed(&m.ID)
	c.fixed(&m.Bytes)
}

func (m *NetReset) fields(c *codec) {
	c.fixed(&m.ID)
	c.byte((*byte)(&m.Reason))
}

func (m *NetOwner) fields(c *codec) {
	c.fixed(&m.ID)
	c.int(&m.PID)
	c.int(&m.Session)
	c.int(&m.Runner)
}

// fixed is an integer of four bytes, big-endian.
func (c *codec) fixed(v *uint32) {
	switch {
	case !c.reading:
		c.b = binary.BigEndian.AppendUint32(c.b, *v)
	case len(c.b) < 4:
		*v = 0
		c.fail("number beyond the end")
	default:
		*v, c.b = binary.BigEndian.Uint32(c.b), c.b[4:]
	}
}

// addrPort is four bytes of an IPv4 address and two of a port. The zero value is written
// as zeros.
func (c *codec) addrPort(v *netip.AddrPort) {
	const size = 6
	switch {
	case !c.reading:
		ip := [4]byte{}
		if v.Addr().Is4() {
			ip = v.Addr().As4()
		}
		c.b = binary.BigEndian.AppendUint16(append(c.b, ip[:]...), v.Port())
	case len(c.b) < size:
		*v = netip.AddrPort{}
		c.fail("address beyond the end")
	default:
		*v = netip.AddrPortFrom(netip.AddrFrom4([4]byte(c.b)), binary.BigEndian.Uint16(c.b[4:]))
		if *v == netip.AddrPortFrom(netip.IPv4Unspecified(), 0) {
			*v = netip.AddrPort{}
		}
		c.b = c.b[size:]
	}
}

// appendFramed appends a message with its header to dst.
func appendFramed(dst []byte, kind Type, m message) []byte {
	start := len(dst)
	dst = encode(AppendHeader(dst, kind, 0), m)
	PutHeader(dst[start:], kind, len(dst)-start-HeaderSize)
	return dst
}

// AppendFrame appends the message as a frame to dst.
func (m NetHello) AppendFrame(dst []byte) []byte { return appendFramed(dst, NetHelloType, &m) }

// AppendFrame appends the message as a frame to dst.
func (m NetOpen) AppendFrame(dst []byte) []byte { return appendFramed(dst, NetOpenType, &m) }

// AppendFrame appends the message as a frame to dst.
func (m NetNew) AppendFrame(dst []byte) []byte { return appendFramed(dst, NetNewType, &m) }

// AppendFrame appends the message as a frame to dst.
func (m NetAnswer) AppendFrame(dst []byte) []byte { return appendFramed(dst, NetAnswerType, &m) }

// AppendFrame appends the message as a frame to dst.
func (m NetCredit) AppendFrame(dst []byte) []byte { return appendFramed(dst, NetCreditType, &m) }

// AppendFrame appends the message as a frame to dst.
func (m NetReset) AppendFrame(dst []byte) []byte { return appendFramed(dst, NetResetType, &m) }

// AppendFrame appends the message as a frame to dst.
func (m NetOwner) AppendFrame(dst []byte) []byte { return appendFramed(dst, NetOwnerType, &m) }

// AppendNetHeader appends what stands before the bytes of a NetDataType, NetEndType or
// NetDatagramType to dst.
func AppendNetHeader(dst []byte, kind Type, id uint32, size int) []byte {
	return binary.BigEndian.AppendUint32(AppendHeader(dst, kind, 4+size), id)
}

// PutNetHeader writes the same into the first NetDataHeader bytes of dst.
func PutNetHeader(dst []byte, kind Type, id uint32, size int) {
	PutHeader(dst, kind, 4+size)
	binary.BigEndian.PutUint32(dst[HeaderSize:], id)
}

// ParseNetHeader splits the payload of such a frame.
func ParseNetHeader(payload []byte) (id uint32, data []byte, err error) {
	if len(payload) < 4 {
		return 0, nil, fmt.Errorf("%w: no number of a stream", ErrFrame)
	}
	return binary.BigEndian.Uint32(payload), payload[4:], nil
}

// ParseNetHello decodes a NetHello.
func ParseNetHello(b []byte) (m NetHello, err error) {
	err = decode(b, &m)
	return m, err
}

// ParseNetOpen decodes a NetOpen.
func ParseNetOpen(b []byte) (m NetOpen, err error) {
	err = decode(b, &m)
	return m, err
}

// ParseNetNew decodes a NetNew.
func ParseNetNew(b []byte) (m NetNew, err error) {
	err = decode(b, &m)
	return m, err
}

// ParseNetAnswer decodes a NetAnswer.
func ParseNetAnswer(b []byte) (m NetAnswer, err error) {
	err = decode(b, &m)
	return m, err
}

// ParseNetCredit decodes a NetCredit.
func ParseNetCredit(b []byte) (m NetCredit, err error) {
	err = decode(b, &m)
	return m, err
}

// ParseNetReset decodes a NetReset.
func ParseNetReset(b []byte) (m NetReset, err error) {
	err = decode(b, &m)
	return m, err
}

// ParseNetOwner decodes a NetOwner.
func ParseNetOwner(b []byte) (m NetOwner, err error) {
	err = decode(b, &m)
	return m, err
}
