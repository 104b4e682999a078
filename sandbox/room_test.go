package sandbox

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// The text of what was full or met has its size, and the flag that gives more.
func TestFullText(t *testing.T) {
	t.Parallel()
	l := labelSpec{
		Profile: Strict, User: User{UID: 1000}, Workspace: Workspace{Target: DefaultTarget},
		Limits: Limits{Memory: 512 << 20, Pids: 64, Disk: 1 << 20, Home: 1 << 20, Tmp: 1 << 20},
	}
	for _, tt := range []struct {
		room wire.NoRoom
		want string
	}{
		{wire.NoRoom{Path: wire.RoomPids}, "the session has reached its limit of 64 processes and threads; give it more with --pids (limits.pids)"},
		{wire.NoRoom{Path: wire.RoomMemory}, "the kernel killed a process at the session's memory limit of 512MiB; give it more with --memory (limits.memory)"},
		{wire.NoRoom{Path: "/tmp", Size: 1 << 20}, "/tmp is full: all of its 1MiB are used; give the session more with --tmp (limits.tmp)"},
		{wire.NoRoom{Path: "/home/agent/.cache", Size: 1 << 20}, "/home/agent/.cache is full: all of its 1MiB are used; give the session more with --home (limits.home)"},
		{wire.NoRoom{Path: "/workspace", Size: 1 << 20}, "give the session more with --disk (limits.disk)"},
		{wire.NoRoom{Path: "/run", Files: true, Size: 7}, "/run is full: it has as many files as it takes, 7; that number is fixed"},
	} {
		full := l.full([]wire.NoRoom{tt.room})
		if len(full) != 1 || !strings.Contains(full[0].String(), tt.want) {
			t.Errorf("full(%+v) = %v; want %q", tt.room, full, tt.want)
		}
		if b, err := json.Marshal(full); err != nil || string(b) != `["`+tt.room.Path+`"]` {
			t.Errorf("full(%+v) is %s in JSON, %v", tt.room, b, err)
		}
	}
}
