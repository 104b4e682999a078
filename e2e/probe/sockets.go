//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// sockets are address families, and unix sockets that were left within reach.
func sockets() []attempt {
	var out []attempt
	for _, s := range []struct {
		name   string
		domain uintptr
		kind   uintptr
	}{
		{"AF_UNIX", unix.AF_UNIX, unix.SOCK_STREAM},
		{"AF_INET", unix.AF_INET, unix.SOCK_STREAM},
		{"AF_INET6", unix.AF_INET6, unix.SOCK_STREAM},
		{"AF_NETLINK", unix.AF_NETLINK, unix.SOCK_RAW},
		{"AF_INET-raw", unix.AF_INET, unix.SOCK_RAW},
		{"AF_INET-packet", unix.AF_INET, unix.SOCK_PACKET},
		{"AF_PACKET", unix.AF_PACKET, unix.SOCK_RAW},
		{"AF_ALG", unix.AF_ALG, unix.SOCK_SEQPACKET},
		{"AF_ALG-high-bit", 1<<32 | unix.AF_ALG, unix.SOCK_SEQPACKET},
		{"AF_VSOCK", unix.AF_VSOCK, unix.SOCK_STREAM},
		{"AF_KEY", unix.AF_KEY, unix.SOCK_RAW},
		{"AF_XDP", unix.AF_XDP, unix.SOCK_RAW},
		{"AF_RDS", unix.AF_RDS, unix.SOCK_SEQPACKET},
		{"AF_TIPC", unix.AF_TIPC, unix.SOCK_SEQPACKET},
		{"AF_CAN", unix.AF_CAN, unix.SOCK_RAW},
		{"AF_BLUETOOTH", unix.AF_BLUETOOTH, unix.SOCK_RAW},
		{"AF_SMC", unix.AF_SMC, unix.SOCK_STREAM},
		{"AF_KCM", unix.AF_KCM, unix.SOCK_DGRAM},
		{"AF_RXRPC", unix.AF_RXRPC, unix.SOCK_DGRAM},
		{"AF_PPPOX", unix.AF_PPPOX, unix.SOCK_DGRAM},
	} {
		protocol := uintptr(0)
		if s.kind == unix.SOCK_RAW && s.domain == unix.AF_INET {
			protocol = unix.IPPROTO_ICMP
		}
		out = append(out, attempt{"E29", "socket-" + s.name, open(unix.SYS_SOCKET, s.domain, s.kind, protocol)})
	}
	for name, protocol := range map[string]uintptr{
		"SOCK_DIAG": unix.NETLINK_SOCK_DIAG, "XFRM": unix.NETLINK_XFRM, "AUDIT": unix.NETLINK_AUDIT, "CONNECTOR": unix.NETLINK_CONNECTOR,
		"NETFILTER": unix.NETLINK_NETFILTER, "KOBJECT_UEVENT": unix.NETLINK_KOBJECT_UEVENT, "GENERIC": unix.NETLINK_GENERIC,
		"KOBJECT_UEVENT-high-bit": 1<<32 | unix.NETLINK_KOBJECT_UEVENT,
	} {
		out = append(out, attempt{"E29", "socket-NETLINK_" + name, open(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, protocol)})
	}
	return append(out,
		attempt{"E29", "socketpair-AF_UNIX", call(unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_STREAM, 0, 0)}, // to nowhere: EFAULT
		attempt{"E29", "socketpair-AF_TIPC", call(unix.SYS_SOCKETPAIR, unix.AF_TIPC, unix.SOCK_SEQPACKET, 0, 0)},
		attempt{"E21", "socket-files", socketFiles},
		attempt{"E21", "unix-sockets", unixSockets},
		attempt{"E21", "engine-sockets", engineSockets},
		attempt{"E21", "connect-init", func() string { return dial("unix", "/run/sandboxbash/init") }},
	)
}

// socketFiles lists every socket in the file system. It makes one first, and says
// so when that is not found.
func socketFiles() string {
	dir, err := os.MkdirTemp("/tmp", "probe")
	if err != nil {
		return outcome(err)
	}
	defer os.RemoveAll(dir)
	own := filepath.Join(dir, "own.sock")
	listener, err := listen("unix", own)
	if err != nil {
		return outcome(err)
	}
	defer func() { _ = listener.Close() }()
	var found []string
	seen := false
	walk(func(path string, mode os.FileMode) {
		switch {
		case path == own:
			seen = true
		case mode&os.ModeSocket != 0:
			found = append(found, path)
		}
	})
	if !seen {
		return "own_socket_not_found"
	}
	return list(found)
}

// unixSockets lists the names of all unix sockets of this network namespace, with
// the same check on itself.
func unixSockets() string {
	const own = "@sandboxbash-probe"
	listener, err := listen("unix", own)
	if err != nil {
		return outcome(err)
	}
	defer func() { _ = listener.Close() }()
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return outcome(err)
	}
	var found []string
	seen := false
	const nameColumn = 7 // Num RefCount Protocol Flags Type St Inode Path
	for i, line := range strings.Split(string(table), "\n") {
		fields := strings.Fields(line)
		switch {
		case i == 0 || len(fields) <= nameColumn:
		case fields[nameColumn] == own:
			seen = true
		default:
			found = append(found, fields[nameColumn])
		}
	}
	if !seen {
		return "own_socket_not_found"
	}
	return list(found)
}

// engineSockets lists the well-known engine and agent sockets that are there.
func engineSockets() string {
	var found []string
	for _, path := range []string{
		"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/crio/crio.sock",
		"/run/podman/podman.sock", "/run/buildkit/buildkitd.sock", "/run/systemd/private", "/run/dbus/system_bus_socket",
		"/run/user/1000/docker.sock", "/run/user/1000/podman/podman.sock", os.Getenv("SSH_AUTH_SOCK"),
	} {
		if path == "" {
			continue
		}
		if _, err := os.Lstat(path); err == nil {
			found = append(found, path)
		}
	}
	return list(found)
}
