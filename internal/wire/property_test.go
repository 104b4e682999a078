package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// everyMessage has a value of each message's type.
func everyMessage() []message {
	return []message{
		&Hello{}, &Open{}, &Request{}, &Taken{}, &Kill{}, &Exit{}, &Failed{}, &Detach{}, &Detached{}, &Pong{},
		&JobStart{}, &JobEnd{}, &JobQuery{}, &JobState{},
		&NetHello{}, &NetOpen{}, &NetNew{}, &NetAnswer{}, &NetCredit{}, &NetReset{}, &NetOwner{},
	}
}

func emptyLike(m message) message {
	again, _ := reflect.TypeAssert[message](reflect.New(reflect.TypeOf(m).Elem()))
	return again
}

// fill sets every field of a message to something that may be sent.
func fill(r *rand.Rand, v reflect.Value) {
	switch at := v.Addr().Interface().(type) {
	case *time.Time:
		*at = time.Unix(0, r.Int64()-r.Int64()).UTC()
		return
	case *netip.AddrPort:
		*at = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, byte(r.Int()), 1, byte(r.Int())}), uint16(r.Uint32()))
		return
	case *TerminalState:
		*at = TerminalStarted
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(r, field)
		}
	case reflect.Pointer:
		v.SetZero()
		if r.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem())
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+r.IntN(maxNoRoom), maxNoRoom))
		for n := range v.Len() {
			fill(r, v.Index(n))
		}
	case reflect.String:
		b := make([]byte, r.IntN(40))
		for n := range b {
			b[n] = byte(r.Int())
		}
		v.SetString(string(b))
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int, reflect.Int64:
		v.SetInt((r.Int64() - r.Int64()) >> r.IntN(64))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(r.Uint64() >> r.IntN(64) & (1<<v.Type().Bits() - 1))
	default:
		panic("a field of a new kind: " + v.Type().String())
	}
}

// eachFilled calls f with many random messages of every type, and their encoding.
func eachFilled(f func(m message, b []byte)) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		for _, m := range everyMessage() {
			fill(r, reflect.ValueOf(m).Elem())
			switch m := m.(type) {
			case *Hello:
				m.Version = Version
			case *Kill:
				m.TimedOut = true // else there is nothing in its place
			}
			f(m, encode(nil, m))
		}
	}
}

// What is encoded is decoded, also with fields of a later version behind it, and a buffer's
// earlier content is not touched.
func TestEveryMessageRoundTrips(t *testing.T) {
	t.Parallel()
	eachFilled(func(m message, b []byte) {
		for _, more := range []string{"", "\x00", "\xff\xff\xff\xff later"} {
			got := emptyLike(m)
			if err := decode(append(bytes.Clone(b), more...), got); err != nil || !reflect.DeepEqual(got, m) {
				t.Fatalf("%T with %q behind it: decoded as %+v, %v; want %+v", m, more, got, err, m)
			}
		}
		if got := encode([]byte("before"), m); string(got) != "before"+string(b) {
			t.Fatalf("%T appended to a buffer: %q; want %q behind it", m, got, b)
		}
	})
}

// A part of a message is refused, unless it is all that a peer of another version sends.
func TestEveryMessageCutAnywhere(t *testing.T) {
	t.Parallel()
	accepted := map[string]bool{}
	eachFilled(func(m message, b []byte) {
		for n := range b {
			got := emptyLike(m)
			switch err := decode(b[:n], got); {
			case err == nil:
				old, now := encodeFor(OldestVersion, nil, got), encode(nil, got)
				if !bytes.Equal(b[:n], old) && !bytes.Equal(b[:n], now) {
					t.Fatalf("%T: %d of %d bytes are taken for %+v", m, n, len(b), got)
				}
				accepted[fmt.Sprintf("%T", m)] = true
			case !errors.Is(err, ErrFrame):
				t.Fatalf("%T: %d of %d bytes: error %v; want ErrFrame", m, n, len(b), err)
			}
		}
	})
	for _, name := range []string{"Hello", "Request", "Kill", "Exit", "JobEnd", "Pong"} {
		if !accepted["*wire."+name] {
			t.Errorf("no %s without its later fields is understood", name)
		}
		delete(accepted, "*wire."+name)
	}
	if len(accepted) > 0 {
		t.Errorf("parts of %v are accepted, which have no later fields", accepted)
	}
}

// A message that is kept holds nothing of the memory that it was read from, but for what is
// documented.
func TestKeptFieldsAreCopies(t *testing.T) {
	t.Parallel()
	req := Request{Seq: 1, Shell: "bash", Script: []byte("script"), Env: []string{"A=b"}, Dir: "/", Job: &testJob}
	b := req.Append(nil)
	got, err := ParseRequest(b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		b[i] = '#'
	}
	if !reflect.DeepEqual(got.Job, req.Job) || got.Env[0] != "A=b" || got.Dir != "/" || got.Shell != "bash" {
		t.Errorf("the request changed with its buffer: %+v, job %+v", got, got.Job)
	}
	if string(got.Script) != "######" {
		t.Errorf("the script is %q; want a part of the buffer, which may be 10 MiB", got.Script)
	}
	if cap(got.Script) != len(got.Script) {
		t.Error("an append to the script would write over what follows it")
	}
}

// What says that much follows takes memory only for what does follow. No other test runs
// meanwhile: the counter is the process's.
func TestHostileLengths(t *testing.T) {
	huge := func(n uint64) []byte { return binary.AppendUvarint(nil, n) }
	hello := Hello{Version: Version, PID: 1}.Append(nil)
	hello = hello[:len(hello)-1] // without the number of features
	exit := encodeFor(OldestVersion, nil, &Exit{Seq: 1})
	for _, n := range []uint64{5, 1 << 20, 1 << 40, math.MaxInt64, math.MaxUint64} {
		for name, row := range map[string]struct {
			b []byte
			m message
		}{
			"a path":     {append(append([]byte{1}, huge(n)...), "abc"...), &Request{}},
			"features":   {append(append(bytes.Clone(hello), huge(n)...), 0, 0), &Hello{}},
			"net hello":  {append(append(slices.Concat([]byte{byte(len(Magic))}, []byte(Magic), []byte{1, 2}), huge(n)...), 0, 0), &NetHello{}},
			"full disks": {append(append(bytes.Clone(exit), huge(n)...), 0, 0, 0), &Exit{}},
			"a record":   {append([]byte{1, 'a'}, huge(n)...), &JobState{}},
		} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := decode(row.b, row.m)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, ErrFrame) {
				t.Errorf("%s of %d: %v; want ErrFrame", name, n, err)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
				t.Errorf("%s of %d takes %d bytes of memory", name, n, grown)
			}
		}
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	overlong := append(bytes.Repeat([]byte{0x80}, 10), 1)
	for _, row := range []struct {
		name string
		b    []byte
		read func(c *codec) any
		want any
		ok   bool
	}{
		{"the largest id", binary.AppendUvarint(nil, math.MaxUint32), narrow, uint32(math.MaxUint32), true},
		{"an id too large", binary.AppendUvarint(nil, math.MaxUint32+1), narrow, uint32(0), false},
		{"an id of 64 bits", binary.AppendUvarint(nil, 1<<32+7), narrow, uint32(0), false},
		{"a number of too many bytes", overlong, wide, uint64(0), false},
		{"the largest number", binary.AppendUvarint(nil, math.MaxUint64), wide, uint64(math.MaxUint64), true},
		{"the smallest int", binary.AppendVarint(nil, math.MinInt64), signed, math.MinInt64, true},
		{"an int of too many bytes", overlong, signed, 0, false},
		{"true", []byte{1}, boolean, true, true},
		{"a boolean of 2", []byte{2}, boolean, false, false},
		{"a boolean of nothing", nil, boolean, false, false},
		{"a port", []byte{0, 0, 1, 0xff}, fixed, uint32(511), true},
		{"half a number", []byte{0, 0, 1}, fixed, uint32(0), false},
		{"an address", []byte{127, 0, 0, 1, 0, 80}, addrPort, netip.MustParseAddrPort("127.0.0.1:80"), true},
		{"no address", make([]byte, 6), addrPort, netip.AddrPort{}, true},
		{"half an address", []byte{127, 0, 0, 1, 0}, addrPort, netip.AddrPort{}, false},
	} {
		c := codec{b: row.b, reading: true}
		got := row.read(&c)
		if got != row.want || (c.err == nil) != row.ok {
			t.Errorf("%s: %v, %v; want %v", row.name, got, c.err, row.want)
		}
		first := c.err
		if first == nil {
			continue
		}
		// All that follows an error is zero, and the first error stays.
		if next := wide(&c); next != uint64(0) || !errors.Is(c.err, first) || c.since(Version) {
			t.Errorf("%s: what follows is %v, %v", row.name, next, c.err)
		}
	}
}

func narrow(c *codec) any   { v := uint32(7); number(c, &v); return v }
func wide(c *codec) any     { v := uint64(7); c.uint(&v); return v }
func signed(c *codec) any   { v := 7; c.int(&v); return v }
func boolean(c *codec) any  { v := true; c.bool(&v); return v }
func fixed(c *codec) any    { v := uint32(7); c.fixed(&v); return v }
func addrPort(c *codec) any { v := netip.AddrPort{}; c.addrPort(&v); return v }

// Names of commands and paths are hostile: whatever they hold, a line stays one line, and the
// other lines keep their meaning.
func TestHostileText(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	alphabet := []string{"\n", "\r", " ", "\"", `\`, "\x00", "\xff", "=", "\u00a0", "\u3000", "a", "é", "\u2028", `\040`, "%s", "1 2 3"}
	text := func() string {
		var b strings.Builder
		b.WriteByte('/')
		for range r.IntN(8) {
			b.WriteString(alphabet[r.IntN(len(alphabet))])
		}
		return b.String()
	}
	for range 2000 {
		processes := []Process{{PID: 2, State: 'S', Command: text()}, {PID: 3, State: 'R', Command: text()}}
		if got, err := ParseProcesses(AppendProcesses(nil, processes)); err != nil || !slices.Equal(got, processes) {
			t.Fatalf("processes %+v are read as %+v, %v", processes, got, err)
		}
		at := netip.MustParseAddrPort("[::1]:80")
		ports := []Port{{Addr: at, PID: 2, Command: text()}, {Addr: at, PID: 3, Age: time.Hour, Command: text()}}
		if got, err := ParsePorts(AppendPorts(nil, ports)); err != nil || !slices.Equal(got, ports) {
			t.Fatalf("ports %+v are read as %+v, %v", ports, got, err)
		}
		want := Mount{Target: text(), Type: "ext4", Options: []string{"rw"}, Device: "8:1", Root: text()}
		var p Posture
		p.AddMount(want)
		p.Add("Uid", "1000")
		got, err := ParsePosture(p.Append(nil))
		if err != nil || len(got) != 3 || !got.Has("Uid", "1000") {
			t.Fatalf("a mount of %q is read as %+v, %v", want, got, err)
		}
		mount, ok1 := got[0].Mount()
		where, ok2 := got[1].Mount()
		if mount.Device, mount.Root = where.Device, where.Root; !ok1 || !ok2 || where.Target != want.Target || !reflect.DeepEqual(mount, want) {
			t.Fatalf("a mount of %+v is read as %+v and %+v", want, mount, where)
		}
	}
}
