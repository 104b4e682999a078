//go:build linux

package proc

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

func TestParseListeners(t *testing.T) {
	t.Parallel()
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	for _, tt := range []struct {
		name, text string
		want       []Listener
	}{
		{"nothing", "", nil},
		{"only the head", head, nil},
		{"IPv4", head + "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 100 0 0 10 0\n", []Listener{{netip.MustParseAddrPort("127.0.0.1:8080"), 4711}}},
		{"IPv6", head + "   0: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 0:0 0:0 0  1000        0 5 1\n", []Listener{{netip.MustParseAddrPort("[::1]:80"), 5}}},
		{"a connection", head + "   1: 0100007F:1F90 0100007F:9999 01 0:0 0:0 0  1000        0 6 1\n", nil},
		{"cut", head + "   1: 0100007F:1F90 0100007F:9999 0A\n", nil},
	} {
		got, err := parseListeners(strings.NewReader(tt.text))
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: parseListeners() = %v, %v; want %v", tt.name, got, err, tt.want)
		}
	}
	for _, local := range []string{"0100007F:", "01:0050", "x:0050", "0100007F:10000"} {
		if got, err := parseListeners(strings.NewReader("0: " + local + " 0:0 0A 0 0 0 0 0 7\n")); err == nil {
			t.Errorf("parseListeners() of %q = %v; want an error", local, got)
		}
	}
}

func TestParseSocket(t *testing.T) {
	t.Parallel()
	open := Pair{netip.MustParseAddrPort("127.0.0.1:36864"), netip.MustParseAddrPort("127.64.0.1:443")}
	for _, tt := range []struct {
		name, line string
		want       Pair
		inode      uint64
	}{
		{"open", "   1: 0100007F:9000 0100407F:01BB 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 100 0 0 10 0", open, 4711},
		{"ends at the inode", " 1: 0100007F:9000 0100407F:01BB 01 0:0 0:0 0 0 0 4711", open, 4711},
		{"waits for late packets", "   2: 0100007F:9000 0100407F:01BB 06 00000000:00000000 03:00001770 00000000     0        0 0 3 0", Pair{}, 0},
		{"the head", "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode", Pair{}, 0},
		{"cut", "   1: 0100007F:9000 0100407F:01BB 01", Pair{}, 0},
		{"no address", "   1: 0100007F 0100407F:01BB 01 0:0 0:0 0 0 0 7 1", Pair{}, 0},
		{"empty", "", Pair{}, 0},
	} {
		pair, inode, ok := parseSocket([]byte(tt.line))
		if ok != (tt.inode != 0) || ok && (pair != tt.want || inode != tt.inode) {
			t.Errorf("%s: parseSocket() = %v, %d, %v; want %v, %d", tt.name, pair, inode, ok, tt.want, tt.inode)
		}
	}
}

// A port of another process is found with its process, and not that of this one, which is a
// runner here.
func TestWritePorts(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	at := netip.MustParseAddrPort(l.Addr().String())
	uid := uint32(os.Getuid())
	ports := func() map[netip.AddrPort]wire.Port {
		var b bytes.Buffer
		if err := WritePorts(&b, uid); err != nil {
			t.Fatal(err)
		}
		list, err := wire.ParsePorts(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		all := map[netip.AddrPort]wire.Port{}
		for _, p := range list {
			all[p.Addr] = p
		}
		return all
	}
	if p, ok := ports()[at]; ok {
		t.Errorf("this process's own port is listed: %+v", p)
	}
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := sleeping(t, f)
	if p := ports()[at]; p.PID != cmd.Process.Pid || !strings.HasPrefix(p.Command, "sleep") {
		t.Errorf("the port of a child is %+v; want pid %d, sleep", p, cmd.Process.Pid)
	}
}

// sleeping starts a process with a file open that is not taken for a runner.
func sleeping(t *testing.T, f *os.File) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if os.Getuid() == 0 { // a process with all capabilities is taken for a runner
		if _, err := exec.LookPath("setpriv"); err != nil {
			t.Skip("no setpriv to give up capabilities with")
		}
		cmd = exec.CommandContext(t.Context(), "setpriv", "--inh-caps=-all", "--bounding-set=-all", "sleep", "60")
	}
	cmd.ExtraFiles = []*os.File{f}
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	// setpriv becomes it: first by its name, and then without the capabilities.
	for Status(cmd.Process.Pid, "Name") != "sleep" || Marked(cmd.Process.Pid) {
		if _, ok := Find(cmd.Process.Pid); !ok {
			t.Fatal("sleep has ended")
		}
	}
	return cmd
}

// The process that has the other end of a connection is found, and none for a connection that is not there.
func TestOwners(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	f, err := conn.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	made := Pair{netip.MustParseAddrPort(conn.LocalAddr().String()), netip.MustParseAddrPort(conn.RemoteAddr().String())}
	other := Pair{made.Remote, made.Remote}
	uid := uint32(os.Getuid())
	pairs := map[Pair]bool{made: true, other: true}
	child := sleeping(t, f).Process.Pid
	if found := Owners(pairs, uid); len(found) != 1 || found[made] != child {
		t.Errorf("Owners() = %v; want %d for %v alone", found, child, made)
	}
	if uid != 0 {
		return // then this process is not taken for a runner
	}
	if leader, runner := Leader(child, uid); leader != child || runner != os.Getpid() {
		t.Errorf("Leader() = %d, %d; want %d, which %d has started", leader, runner, child, os.Getpid())
	}
}
