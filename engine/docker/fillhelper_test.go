package docker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/engine"
)

// readID is that of the session that is read, and fillerID that of the helper.
const (
	readID   = "01a210ea-6e2a-7b89-ba29-39807846dde6"
	fillerID = "01a210ea-85c4-7c30-ada9-ea1ff2ba2ff0"
)

// filledShape is a session whose workspace is filled by do from that of another.
func filledShape(t *testing.T, d *fakeDocker, do func(context.Context, engine.Handle) error) engine.Shape {
	t.Helper()
	d.volumes[namePrefix+readID] = Volume{Name: namePrefix + readID, Labels: withLabels(nil, readID, roleWorkspace)}
	return session(func(s *engine.Shape) {
		s.Workspace.Fill = &engine.Fill{
			Helper: engine.Helper{ID: fillerID, Confinement: s.Confinement, Over: []engine.Attachment{{Session: readID, Target: "/from"}}},
			Target: "/to", Records: "/records", Do: do,
		}
	})
}

// While a workspace is being filled, what there is of the session is the rest of one that never was: it can be neither found as
// a session nor kept. Afterwards the session is as any other.
func TestFill(t *testing.T) {
	t.Parallel()
	e, d, _ := fakeSessions()
	called := 0
	h, _, err := e.Provision(t.Context(), filledShape(t, d, func(ctx context.Context, h engine.Handle) error {
		called++
		d.mu.Lock()
		helper := d.containers[ContainerID(h.Ref)]
		d.mu.Unlock()
		at := map[string]Mount{}
		for _, m := range helper.Mounts {
			at[m.Target] = m
		}
		if m := at["/from"]; m.Source != namePrefix+readID || !m.ReadOnly {
			t.Errorf("the helper has %+v at /from; want the other workspace, read-only", m)
		}
		if m := at["/to"]; m.Source != namePrefix+testID || m.ReadOnly {
			t.Errorf("the helper has %+v at /to; want the new workspace, writable", m)
		}
		if m := at["/records"]; m.Source != namePrefix+testID+recordsSuffix || m.ReadOnly {
			t.Errorf("the helper has %+v at /records; want the new records, writable", m)
		}
		d.mu.Lock()
		var all []Volume
		for _, v := range d.volumes {
			if strings.HasPrefix(v.Name, namePrefix+testID) {
				all = append(all, v)
			}
		}
		d.mu.Unlock()
		if left := sessionsIn(all); len(left) != 1 || left[0].Status != engine.StatusLeft || left[0].Labels["draft"] != "" || left[0].Labels["owner"] != "me" {
			t.Errorf("it is listed as %+v; want it left, with the labels of what is made alone", left)
		}
		return nil
	}))
	if err != nil || called != 1 {
		t.Fatalf("Provision() = %v after %d calls; want nil after one", err, called)
	}
	left := d.left()
	if slices.ContainsFunc(left, func(s string) bool { return strings.Contains(s, draftSuffix) || strings.Contains(s, fillerID) }) {
		t.Errorf("there is %q; want neither the mark nor the helper", left)
	}
	if found, err := e.Find(t.Context(), testID); err != nil || found.Handle != h || found.Status != engine.StatusRunning {
		t.Errorf("Find() = %+v, %v; want it running", found, err)
	}
}

// Whatever fails, nothing is left but the other session.
func TestFillFails(t *testing.T) {
	t.Parallel()
	ok := func(context.Context, engine.Handle) error { return nil }
	for _, tt := range []struct {
		name string
		fail func(string) error
		do   func(context.Context, engine.Handle) error
	}{
		{"no volume", onCall("volume", errTest), ok},
		{"no container", onCall("create", errTest), ok},
		{"no start", onCall("start", errTest), ok},
		{"it is not filled", nil, func(context.Context, engine.Handle) error { return errTest }},
	} {
		e, d, _ := fakeSessions()
		shape := filledShape(t, d, tt.do)
		d.fail = tt.fail
		if _, _, err := e.Provision(t.Context(), shape); !errors.Is(err, errTest) {
			t.Errorf("%s: Provision() = %v; want %v", tt.name, err, errTest)
		}
		if left := d.left(); !slices.Equal(left, []string{"volume " + namePrefix + readID}) {
			t.Errorf("%s: left %q; want the other workspace alone", tt.name, left)
		}
	}
	e, d, _ := fakeSessions()
	shape := filledShape(t, d, ok)
	delete(d.volumes, namePrefix+readID)
	_, _, err := e.Provision(t.Context(), shape)
	if gone, is := errors.AsType[*engine.GoneError](err); !is || gone.Session != readID {
		t.Errorf("Provision() from what has gone = %v; want that it has", err)
	}
	if left := d.left(); len(left) > 0 {
		t.Errorf("left %q; want nothing", left)
	}
}
