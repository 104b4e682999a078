//go:build linux

package user

import (
	"bytes"
	"os"
	"strings"

	"github.com/sandboxbash/sandboxbash/internal/runner/proc"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// addNames reports what resolves names, resolv.conf(5) and hosts(5), and which ports a
// resolver of the session's own could listen on.
func addNames(report *wire.Posture) {
	resolv, _ := os.ReadFile("/etc/resolv.conf")
	for _, key := range []string{"nameserver", "search", "options"} {
		report.Add(wire.FactResolver.Of(key), strings.Join(resolverValues(resolv, key), " "))
	}
	hosts, _ := os.ReadFile("/etc/hosts")
	name, _ := os.Hostname()
	report.Add(wire.FactHosts, hostsKind(hosts, name))
	value := wire.FactUnknown
	if b, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(wire.UnprivilegedPorts, ".", "/")); err == nil {
		value = strings.TrimSpace(string(b))
	}
	report.Add(wire.FactSysctl.Of(wire.UnprivilegedPorts), value)
}

// resolverValues returns what every line of that key says. The key domain is an
// older word for search.
func resolverValues(file []byte, key string) []string {
	var values []string
	for line := range proc.Lines(file) {
		f := strings.Fields(string(line))
		if len(f) > 0 && (f[0] == key || f[0] == "domain" && key == "search") {
			values = append(values, f[1:]...)
		}
	}
	return values
}

// hostsKind is wire.HostsOwn for a hosts(5) that names the loopback, multicast groups
// and this container, and wire.HostsForeign for any other.
func hostsKind(file []byte, own string) string {
	for line := range proc.Lines(file) {
		line, _, _ = bytes.Cut(line, []byte("#"))
		for i, name := range strings.Fields(string(line)) {
			known := i == 0 || name == own || name == "localhost" || strings.HasPrefix(name, "localhost.") ||
				strings.HasPrefix(name, "ip6-") || strings.HasPrefix(name, "sandboxbash-")
			if !known {
				return wire.HostsForeign
			}
		}
	}
	return wire.HostsOwn
}
