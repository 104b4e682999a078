package gateway_test

import (
	"bytes"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandboxbash/sandboxbash/network"
	"github.com/sandboxbash/sandboxbash/network/gateway"
)

// dnsQuestions are what hostile and odd resolvers send.
func dnsQuestions(tb testing.TB) map[string][]byte {
	tb.Helper()
	header := []byte{0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	with := func(b ...byte) []byte { return append(bytes.Clone(header), b...) }
	long := with()
	for range 300 {
		long = append(long, 1, 'a')
	}
	return map[string][]byte{
		"a pointer to itself":         with(0xc0, 12, 0, 1, 0, 1),
		"two pointers in a loop":      with(0xc0, 14, 0xc0, 12, 0, 1, 0, 1),
		"a pointer behind the end":    with(0xff, 0xff, 0, 1, 0, 1),
		"a name without an end":       with(63, 'a', 'b'),
		"a reserved kind of label":    with(0x80, 'a', 0, 0, 1, 0, 1),
		"a name of 600 bytes":         append(long, 0, 0, 1, 0, 1),
		"no question":                 {0, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"65,535 questions":            {0, 7, 1, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0},
		"the root":                    with(0, 0, 1, 0, 1),
		"class CHAOS":                 with(1, 'a', 3, 'c', 'o', 'm', 0, 0, 16, 0, 3),
		"an update":                   append([]byte{0, 7, 0x28, 0, 0, 1, 0, 0, 0, 0, 0, 0}, 1, 'a', 3, 'c', 'o', 'm', 0, 0, 1, 0, 1),
		"a label with a dot in it":    with(3, 'a', '.', 'b', 3, 'c', 'o', 'm', 0, 0, 1, 0, 1),
		"a label with a NUL in it":    with(3, 'a', 0, 'b', 3, 'c', 'o', 'm', 0, 0, 1, 0, 1),
		"a label of other bytes":      with(3, 0xff, 0xfe, 0x80, 3, 'c', 'o', 'm', 0, 0, 1, 0, 1),
		"a reverse name that is none": with(3, 'x', 'y', 'z', 7, 'i', 'n', '-', 'a', 'd', 'd', 'r', 4, 'a', 'r', 'p', 'a', 0, 0, 12, 0, 1),
		"an answer":                   append([]byte{0, 7, 0x81, 0, 0, 1, 0, 0, 0, 0, 0, 0}, 1, 'a', 3, 'c', 'o', 'm', 0, 0, 1, 0, 1),
		"bytes behind the question":   with(append([]byte{1, 'a', 3, 'c', 'o', 'm', 0, 0, 1, 0, 1}, make([]byte, 4000)...)...),
	}
}

// checkAnswer fails if an answer to a question is not one that a resolver can take.
func checkAnswer(tb testing.TB, question, answer []byte, limit int) {
	tb.Helper()
	if answer == nil {
		return
	}
	var m dnsmessage.Message
	if err := m.Unpack(answer); err != nil {
		tb.Fatalf("%x: the answer %x cannot be read: %v", question, answer, err)
	}
	if len(answer) > limit || !m.Response || m.ID != uint16(question[0])<<8|uint16(question[1]) || len(m.Answers) > 1 {
		tb.Fatalf("%x: the answer has %d bytes, and is %+v", question, len(answer), m)
	}
	for _, a := range m.Answers {
		if addr, ok := a.Body.(*dnsmessage.AResource); ok && addr.A[0] != 127 {
			tb.Fatalf("%x: the address %v is none of the session's loopback", question, addr.A)
		}
	}
}

func TestHostileQuestions(t *testing.T) {
	l := newLab(t, gateway.Limits{}, "a.com", "*")
	l.host("a.com", 443, "")
	for name, question := range dnsQuestions(t) {
		t.Run(name, func(t *testing.T) {
			checkAnswer(t, question, l.gateway.Answer(t.Context(), question, 512), 512)
		})
	}
	for kind := range 300 { // of every type
		q := []byte{0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 'a', 3, 'c', 'o', 'm', 0, byte(kind >> 8), byte(kind), 0, 1}
		answer := l.gateway.Answer(t.Context(), q, 512)
		checkAnswer(t, q, answer, 512)
		if has := bytes.Contains(answer, []byte{0, 4, 127, 64}); answer == nil || has != (kind == int(dnsmessage.TypeA)) {
			t.Errorf("type %d: %x; want an address for type A alone, and an answer for all", kind, answer)
		}
	}
}

// FuzzAnswer: no question makes the stub fail, answer what cannot be read, or name an address that is not
// the session's own.
func FuzzAnswer(f *testing.F) {
	for _, question := range dnsQuestions(f) {
		f.Add(question)
	}
	rule, err := network.ParseRule("a.com")
	if err != nil {
		f.Fatal(err)
	}
	g := gateway.New(gateway.Options{Rules: &network.Policy{Allow: []network.Rule{rule}}, Resolver: hosts{}})
	f.Cleanup(g.Close)
	f.Fuzz(func(t *testing.T, question []byte) {
		for _, limit := range []int{512, 1<<16 - 1} {
			checkAnswer(t, question, g.Answer(t.Context(), question, limit), limit)
		}
	})
}
