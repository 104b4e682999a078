package wire

import (
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestPorts(t *testing.T) {
	t.Parallel()
	want := []Port{
		{Addr: netip.MustParseAddrPort("127.0.0.1:8080"), PID: 12, Age: 1500 * time.Millisecond, Command: "python3 -m http.server"},
		{Addr: netip.MustParseAddrPort("[::]:80"), PID: 1 << 22, Command: "a \"b\"\n\x1b[31m\xff"},
	}
	got, err := ParsePorts(AppendPorts(nil, want))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("ParsePorts(AppendPorts()) = %+v, %v; want %+v", got, err, want)
	}
	many := make([]Port, MaxPorts+1)
	for i := range many {
		many[i] = Port{Addr: want[0].Addr, Command: strings.Repeat("\x01", 5000)}
	}
	text := AppendPorts(nil, many)
	if got, err := ParsePorts(text); err != nil || len(got) != MaxPorts || len(text) > 4<<20 {
		t.Errorf("%d ports in %d bytes, %v; want %d in 4 MiB", len(got), len(text), err, MaxPorts)
	}
	for _, bad := range []string{"x 1 2 \"c\"\n", "127.0.0.1 1 2 \"c\"\n", "127.0.0.1:1 a 2 \"c\"\n", "127.0.0.1:1 1\n", "127.0.0.1:1 1 2 c\n"} {
		if _, err := ParsePorts([]byte(bad)); !errors.Is(err, ErrFrame) {
			t.Errorf("ParsePorts(%q) = %v; want ErrFrame", bad, err)
		}
	}
}
