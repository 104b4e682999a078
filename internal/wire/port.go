package wire

import (
	"fmt"
	"net/netip"
	"time"
)

// Port is a TCP socket of a session that takes connections, as VerbPorts lists it.
type Port struct {
	Addr    netip.AddrPort
	PID     int           // of a process that has it open
	Age     time.Duration // of that process
	Command string        // the start of the command line: hostile text
}

// MaxPorts bounds how many ports an answer of VerbPorts has.
const MaxPorts = 4096

// AppendPorts appends the answer of VerbPorts to dst, one port per line.
func AppendPorts(dst []byte, list []Port) []byte {
	list = list[:min(len(list), MaxPorts)]
	most := min(MaxCommandLine, maxProcessList/max(1, len(list)))
	for _, p := range list {
		dst = fmt.Appendf(dst, "%s %d %d %s\n", p.Addr, p.PID, p.Age.Milliseconds(), quoted(p.Command, most))
	}
	return dst
}

// ParsePorts reads an answer of VerbPorts.
func ParsePorts(b []byte) ([]Port, error) {
	var list []Port
	for line := range textLines(b) {
		var p Port
		var addr string
		var age int64
		if _, err := fmt.Sscanf(line, "%s %d %d %q", &addr, &p.PID, &age, &p.Command); err != nil {
			return nil, fmt.Errorf("%w: port %q: %w", ErrFrame, line, err)
		}
		var err error
		if p.Addr, err = netip.ParseAddrPort(addr); err != nil {
			return nil, fmt.Errorf("%w: port %q: %w", ErrFrame, line, err)
		}
		p.Age = time.Duration(age) * time.Millisecond
		list = append(list, p)
	}
	return list, nil
}
