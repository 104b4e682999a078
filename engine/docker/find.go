package docker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// ours reports whether a container is a session of ours, and which. An image can carry
// our labels, and anyone can choose a name: it takes both, our entry point, and our
// runner mounted read-only where that entry point lies.
func ours(c ContainerState) (id string, ok bool) {
	id = c.Labels[labelSession]
	if !engine.ValidID(id) || c.Name != namePrefix+id {
		return "", false
	}
	if len(c.Entrypoint) < 2 || c.Entrypoint[0] != engine.RunnerPath || c.Entrypoint[1] != string(wire.VerbInit) {
		return "", false
	}
	for _, m := range c.Mounts {
		if m.Type == "volume" && m.Target == engine.RunnerDir && m.ReadOnly && strings.HasPrefix(m.Source, runnerPrefix) {
			return id, true
		}
	}
	return "", false
}

// sessionOf describes a container that is ours.
func sessionOf(id string, c ContainerState) engine.Session {
	return engine.Session{
		Handle: engine.Handle{ID: id, Ref: string(c.ID)}, Labels: c.Labels, Status: c.Status, OOMKilled: c.OOMKilled, ExitCode: c.ExitCode,
		Created: c.Created, Started: c.Started, Finished: c.Finished,
	}
}

// Find returns the session of that id.
func (e *Engine) Find(ctx context.Context, id string) (engine.Session, error) {
	c, err := e.containers.Container(ctx, namePrefix+id)
	if err == nil {
		if _, ok := ours(c); !ok {
			return engine.Session{}, notOurs(id)
		}
		return sessionOf(id, c), nil
	}
	if !errors.Is(err, engine.ErrNotFound) {
		return engine.Session{}, err
	}
	all, listErr := e.volumes.Volumes(ctx, map[string]string{labelSession: id})
	if listErr != nil {
		return engine.Session{}, listErr
	}
	if left := sessionsIn(all); len(left) > 0 {
		return left[0], nil
	}
	return engine.Session{}, err
}

func notOurs(id string) error {
	return &engine.Error{Op: "find session " + id, Kind: engine.ErrNotFound, Err: errors.New("a container has its name, and is not a session")}
}

// List returns all sessions of ours, oldest first. Volumes are listed before containers: the
// volumes of a session that is being made have no container yet, and are never taken for
// leftovers once it exists.
func (e *Engine) List(ctx context.Context) ([]engine.Session, error) {
	var ends []Volume
	for _, role := range []string{roleWorkspace, roleKept} {
		some, err := e.volumes.Volumes(ctx, map[string]string{labelRole: role})
		if err != nil {
			return nil, err
		}
		ends = append(ends, some...)
	}
	all, err := e.containers.Containers(ctx, map[string]string{labelRole: roleSession})
	if err != nil {
		return nil, err
	}
	var list []engine.Session
	there := map[string]bool{}
	for _, c := range all {
		if id, ok := ours(c); ok {
			list, there[id] = append(list, sessionOf(id, c)), true
		}
	}
	for _, s := range sessionsIn(ends) {
		if !there[s.ID] {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b engine.Session) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}

// sessionsIn describes the sessions that volumes are left of, as if none had a container.
// The labels of the mark win over the workspace's, and those over any other volume's.
func sessionsIn(all []Volume) []engine.Session {
	byID := map[string]map[string]Volume{} // session, volume's name
	for _, v := range all {
		id := v.Labels[labelSession]
		kept := v.Labels[labelRole] == roleKept && v.Name == namePrefix+id+keptSuffix
		if !engine.ValidID(id) || !kept && (v.Labels[labelRole] != roleWorkspace || !slices.Contains(sessionVolumes(id), v.Name)) {
			continue
		}
		if byID[id] == nil {
			byID[id] = map[string]Volume{}
		}
		byID[id][v.Name] = v
	}
	var list []engine.Session
	for id, have := range byID {
		mark, kept := have[namePrefix+id+keptSuffix]
		workspace, there := have[namePrefix+id]
		s := engine.Session{Handle: engine.Handle{ID: id}, Status: engine.StatusLeft}
		switch {
		case kept && there:
			s.Status, s.Labels, s.Created = engine.StatusKept, mark.Labels, mark.Created
		case kept:
			s.Status, s.Labels, s.Created = engine.StatusStray, mark.Labels, mark.Created
		case there:
			s.Labels, s.Created = workspace.Labels, workspace.Created
		default:
			for _, v := range have {
				s.Labels, s.Created = v.Labels, v.Created
			}
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b engine.Session) int { return cmp.Compare(a.ID, b.ID) })
	return list
}
