package sandbox

import (
	"strings"
	"testing"
)

// The last connections are remembered, in their order, and a reader finds where to go on.
func TestConnectionLog(t *testing.T) {
	t.Parallel()
	var l connectionLog
	list, next, more := l.after(0)
	if len(list) != 0 || next != 0 {
		t.Errorf("an empty log: %d connections, next %d", len(list), next)
	}
	const all = MaxConnections + 10
	for i := range all {
		l.add(Connection{Port: i})
	}
	<-more
	for _, row := range []struct {
		from  uint64
		first int
		count int
	}{{0, 10, MaxConnections}, {10, 10, MaxConnections}, {all - 3, all - 3, 3}, {all, 0, 0}, {all + 5, 0, 0}} {
		list, next, _ := l.after(row.from)
		if len(list) != row.count || next != all || row.count > 0 && list[0].Port != row.first {
			t.Errorf("after(%d): %d connections, next %d; want %d, %d", row.from, len(list), next, row.count, all)
		}
	}
}

func TestRemembered(t *testing.T) {
	t.Parallel()
	e := &Engine{}
	c := e.remembered(Connection{Path: strings.Repeat("x", 10*maxRemembered), Host: "a.example"})
	if len(c.Path) != maxRemembered || c.Host != "a.example" {
		t.Errorf("remembered: a path of %d bytes, host %q", len(c.Path), c.Host)
	}
}
