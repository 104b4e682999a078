package wire

import (
	"encoding/hex"
	"net/netip"
	"reflect"
	"testing"
	"time"
)

// The bytes never change: sessions outlive an upgrade of the host.
func TestNetMessages(t *testing.T) {
	t.Parallel()
	local := netip.MustParseAddrPort("127.64.0.1:443")
	for _, row := range []struct {
		m, got message
		want   string
	}{
		{&NetHello{Version: 1, PID: 5, Features: []string{"a"}}, &NetHello{}, "1273616e64626f78626173682d72756e6e6572010a010161"},
		{&NetOpen{Version: 1, Lease: time.Second, UID: 1000}, &NetOpen{}, "0180a8d6b907e807"},
		{&NetNew{ID: 3, Kind: NetNamed, Local: local}, &NetNew{}, "00000003027f40000101bb000000000000"},
		{&NetAnswer{ID: 2, Errno: 98}, &NetAnswer{}, "0000000262"},
		{&NetCredit{ID: 1, Bytes: 1 << 20}, &NetCredit{}, "0000000100100000"},
		{&NetReset{ID: 1 << 31, Reason: NetCut}, &NetReset{}, "8000000005"},
		{&NetOwner{ID: 1, PID: 7, Session: 6, Runner: 5}, &NetOwner{}, "000000010e0c0a"},
	} {
		b := encode(nil, row.m)
		if got := hex.EncodeToString(b); got != row.want {
			t.Errorf("%T is %s; want %s", row.m, got, row.want)
		}
		if err := decode(append(b, "more"...), row.got); err != nil || !reflect.DeepEqual(row.got, row.m) {
			t.Errorf("%T decodes to %+v, %v; want %+v", row.m, row.got, err, row.m)
		}
		for n := range b {
			if err := decode(b[:n], row.got); err == nil {
				t.Errorf("%T of %d bytes decodes", row.m, n)
			}
		}
	}
}
