package wire

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A runner of the version before is sent no field that it does not know, and what it
// sends is understood.
func TestRoomsOfVersions(t *testing.T) {
	t.Parallel()
	before := Request{Seq: 7, Shell: "bash", Script: []byte("x"), Dir: "/"}.Append(nil)
	before = before[:len(before)-1] // without the empty list
	with := Request{Seq: 7, Shell: "bash", Script: []byte("x"), Dir: "/", Watch: []string{"/", "/tmp"}}
	if got := with.Append(nil); string(got[:len(before)]) != string(before) {
		t.Errorf("a Request with a Watch does not begin as one without")
	}
	if got := with.AppendFor(4, nil); string(got) != string(before) {
		t.Errorf("AppendFor(4) = %q; want %q", got, before)
	}
	if got, err := ParseRequest(before); err != nil || got.Watch != nil {
		t.Errorf("ParseRequest(of version 4) = %+v, %v; want nothing watched", got, err)
	}
	if got, err := ParseRequest(with.Append(nil)); err != nil || !cmp.Equal(got.Watch, with.Watch) {
		t.Errorf("ParseRequest() = %+v, %v; want %q watched", got, err, with.Watch)
	}
	full := []NoRoom{{Path: "/tmp", Size: 8 << 20}, {Path: "/home/agent", Files: true, Size: 5}}
	exit := Exit{Seq: 7, Code: 1, Stdout: 9, NoRoom: full}
	if got, err := ParseExit(exit.Append(nil)); err != nil || !cmp.Equal(got, exit) {
		t.Errorf("ParseExit() = %+v, %v; want %+v", got, err, exit)
	}
	end := JobEnd{ID: "1", Code: 1, NoRoom: full}
	key := []byte("k")
	if got, err := OpenJobEnd(key, end.Seal(key)); err != nil || !cmp.Equal(got.NoRoom, full) {
		t.Errorf("OpenJobEnd() = %+v, %v; want %+v", got, err, full)
	}
	end.NoRoom = nil
	short := end.Seal(key)
	if got, err := OpenJobEnd(key, short); err != nil || got.NoRoom != nil {
		t.Errorf("OpenJobEnd(without) = %+v, %v", got, err)
	}
	many := Exit{NoRoom: make([]NoRoom, maxNoRoom+1)}
	if got, err := ParseExit(many.Append(nil)); err != nil || len(got.NoRoom) != maxNoRoom {
		t.Errorf("ParseExit(too many) = %d, %v; want %d", len(got.NoRoom), err, maxNoRoom)
	}
}
