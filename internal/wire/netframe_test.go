package wire

import (
	"bytes"
	"errors"
	"math"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

// netMessages are the messages of VerbNet as frames, with what reads their payload.
var netMessages = []struct {
	kind  Type
	m     any
	frame func(dst []byte) []byte
	parse func(b []byte) (any, error)
}{
	{NetHelloType, helloOfNet, helloOfNet.AppendFrame, func(b []byte) (any, error) { return ParseNetHello(b) }},
	{NetOpenType, openOfNet, openOfNet.AppendFrame, func(b []byte) (any, error) { return ParseNetOpen(b) }},
	{NetNewType, newOfNet, newOfNet.AppendFrame, func(b []byte) (any, error) { return ParseNetNew(b) }},
	{NetAnswerType, answerOfNet, answerOfNet.AppendFrame, func(b []byte) (any, error) { return ParseNetAnswer(b) }},
	{NetCreditType, creditOfNet, creditOfNet.AppendFrame, func(b []byte) (any, error) { return ParseNetCredit(b) }},
	{NetResetType, resetOfNet, resetOfNet.AppendFrame, func(b []byte) (any, error) { return ParseNetReset(b) }},
	{NetOwnerType, ownerOfNet, ownerOfNet.AppendFrame, func(b []byte) (any, error) { return ParseNetOwner(b) }},
}

var (
	helloOfNet  = NetHello{Version: NetVersion, PID: 9, Features: []string{"one", ""}}
	openOfNet   = NetOpen{Version: NetVersion, Lease: time.Minute, UID: math.MaxUint32}
	newOfNet    = NetNew{ID: math.MaxUint32, Kind: NetProxy, Local: netip.MustParseAddrPort("127.0.0.1:3128"), Remote: netip.MustParseAddrPort("127.0.0.1:65535")}
	answerOfNet = NetAnswer{ID: 4, Errno: 98}
	creditOfNet = NetCredit{ID: 3, Bytes: math.MaxUint32}
	resetOfNet  = NetReset{ID: 3, Reason: NetTimeout}
	ownerOfNet  = NetOwner{ID: 3, PID: maxPID, Session: 1, Runner: 0}
)

// Frames are of the type that the peer expects, and their headers say their length, whatever stands
// before them in the buffer.
func TestNetFrames(t *testing.T) {
	t.Parallel()
	var stream []byte
	for _, row := range netMessages {
		stream = row.frame(stream)
	}
	r := NewReader(bytes.NewReader(stream))
	for _, row := range netMessages {
		kind, payload, err := r.Next()
		if err != nil || kind != row.kind {
			t.Fatalf("%T: Next() = %q, %v; want %q", row.m, kind, err, row.kind)
		}
		if got, err := row.parse(payload); err != nil || !reflect.DeepEqual(got, row.m) {
			t.Errorf("%T is read as %+v, %v; want %+v", row.m, got, err, row.m)
		}
		for n := range payload {
			if got, err := row.parse(payload[:n]); !errors.Is(err, ErrFrame) {
				t.Errorf("%T of %d bytes is read as %+v, %v; want ErrFrame", row.m, n, got, err)
			}
		}
	}
	if _, _, err := r.Next(); err == nil {
		t.Error("there is something behind the last frame")
	}
}

// Both ways to write a header agree, and what reads it finds the same.
func TestNetHeaders(t *testing.T) {
	t.Parallel()
	for _, kind := range []Type{NetDataType, NetEndType, NetDatagramType} {
		for _, id := range []uint32{0, 1, math.MaxUint32} {
			for _, size := range []int{0, 1, MaxDatagram, NetData} {
				data := bytes.Repeat([]byte{'x'}, size)
				frame := append(AppendNetHeader([]byte("before"), kind, id, size), data...)[len("before"):]
				written := append(make([]byte, NetDataHeader), data...)
				PutNetHeader(written, kind, id, size)
				if !bytes.Equal(frame, written) || len(frame) > NetFrame {
					t.Errorf("%q of stream %d, %d bytes: %.20x and %.20x; want the same, of at most %d bytes", kind, id, size, frame, written, NetFrame)
				}
				got, payload, err := NewReader(bytes.NewReader(frame)).Next()
				if err != nil || got != kind {
					t.Fatalf("Next() = %q, %v; want %q", got, err, kind)
				}
				if gotID, gotData, err := ParseNetHeader(payload); err != nil || gotID != id || !bytes.Equal(gotData, data) {
					t.Errorf("ParseNetHeader() = %d, %d bytes, %v; want %d, %d", gotID, len(gotData), err, id, size)
				}
			}
		}
	}
	for n := range 4 {
		if id, data, err := ParseNetHeader(make([]byte, n)); !errors.Is(err, ErrFrame) {
			t.Errorf("ParseNetHeader(%d bytes) = %d, %q, %v; want ErrFrame", n, id, data, err)
		}
	}
}

func TestNetHelloKnown(t *testing.T) {
	t.Parallel()
	for _, version := range []uint64{OldestNetVersion - 1, OldestNetVersion, NetVersion, NetVersion + 1, math.MaxUint64} {
		ok := version >= OldestNetVersion && version <= NetVersion
		err := NetHello{Version: version}.Known()
		if (err == nil) != ok || !ok && !errors.Is(err, ErrFrame) {
			t.Errorf("Known(version %d) = %v; want it known: %t", version, err, ok)
		}
		if !ok && !strings.Contains(err.Error(), "start another session") {
			t.Errorf("Known(version %d) = %v; want what to do", version, err)
		}
	}
	if _, err := ParseNetHello([]byte("\x05Hello, world, and more")); !errors.Is(err, ErrFrame) || !strings.Contains(err.Error(), `"Hello"`) {
		t.Errorf("ParseNetHello(another program's greeting) = %v; want ErrFrame with its text", err)
	}
}

// Types in the optional range are skipped by who does not know them; all others end a stream.
func TestOptional(t *testing.T) {
	t.Parallel()
	for kind := range 256 {
		if got, want := Type(kind).Optional(), kind >= 128; got != want {
			t.Errorf("Type(%d).Optional() = %t; want %t", kind, got, want)
		}
	}
	if !NetOwnerType.Optional() || NetNewType.Optional() || TypeExit.Optional() {
		t.Error("the first version knows no owners and must be able to skip them; nothing else may be skipped")
	}
}

// No bytes make a parser of the network's frames panic, and what it accepts it can say again.
func FuzzNet(f *testing.F) {
	for n, row := range netMessages {
		f.Add(byte(n), row.frame(nil)[HeaderSize:])
	}
	f.Fuzz(func(t *testing.T, which byte, data []byte) {
		row := netMessages[int(which)%len(netMessages)]
		got, err := row.parse(data)
		if err != nil {
			if !errors.Is(err, ErrFrame) {
				t.Errorf("%T: %v; want ErrFrame", row.m, err)
			}
			return
		}
		m, _ := reflect.TypeAssert[message](reflect.New(reflect.TypeOf(got)))
		reflect.ValueOf(m).Elem().Set(reflect.ValueOf(got))
		if again, err := row.parse(encode(nil, m)); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%+v changed to %+v when said again: %v", got, again, err)
		}
	})
}

// No text of a runner's makes a parser panic, and what it accepts it can say again.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte("7 1 7 S 0 1 2 \"sleep 1\"\n"))
	f.Add([]byte("127.0.0.1:80 7 1500 \"python3\"\n"))
	f.Add([]byte("ab12 3 4096\n- 0 0\n"))
	f.Add([]byte("mount=/workspace ext4 rw,nosuid\nplace=/workspace 8:1 /a\\040b\n"))
	f.Add([]byte("ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if list, err := ParseProcesses(data); err == nil && len(list) < 100 {
			for i := range list {
				list[i].Command = list[i].Command[:min(len(list[i].Command), 50)]
			}
			if again, err := ParseProcesses(AppendProcesses(nil, list)); err != nil || !reflect.DeepEqual(again, list) {
				t.Errorf("processes %+v changed to %+v: %v", list, again, err)
			}
		}
		if list, err := ParsePorts(data); err == nil && len(list) > 0 {
			if again, err := ParsePorts(AppendPorts(nil, list)); err != nil || len(again) != min(len(list), MaxPorts) || again[0].Addr != list[0].Addr {
				t.Errorf("ports %+v changed to %+v: %v", list, again, err)
			}
		}
		if list, err := ParseSurveys(data); err == nil {
			var b []byte
			for _, s := range list {
				b = AppendSurvey(b, s)
			}
			if again, err := ParseSurveys(b); err != nil || !reflect.DeepEqual(again, list) {
				t.Errorf("surveys %+v changed to %+v: %v", list, again, err)
			}
		}
		if sum, err := ParseSum(data); err == nil {
			if again, err := ParseSum(sum.Append(nil)); err != nil || again != sum {
				t.Errorf("a sum changed from %x to %x: %v", sum, again, err)
			}
		}
		p, err := ParsePosture(data)
		if err != nil {
			return
		}
		if again, err := ParsePosture(p.Append(nil)); err != nil || !reflect.DeepEqual(again, p) {
			t.Errorf("a posture %+v changed to %+v: %v", p, again, err)
		}
		for _, fact := range p {
			if m, ok := fact.Mount(); ok && m.Target == "" {
				t.Errorf("%+v is a mount of nothing", fact)
			}
		}
	})
}
