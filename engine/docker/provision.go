package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sync/errgroup"

	"github.com/sandboxbash/sandboxbash/engine"
)

// shared are the volumes that a session shares with others; "" for none.
type shared struct{ runner, programs, accounts string }

// Provision makes the session's volumes and finds those that it shares, all at once;
// then it creates the container in parallel with filling the workspace, and starts it.
func (e *Engine) Provision(ctx context.Context, s engine.Shape) (engine.Handle, []string, error) {
	id, notes, err := e.provision(ctx, s)
	if err != nil {
		return engine.Handle{}, nil, errors.Join(e.discardCaches(context.WithoutCancel(ctx), s, err), e.discardVolumes(ctx, s.ID))
	}
	return engine.Handle{ID: s.ID, Ref: string(id)}, notes, nil
}

func (e *Engine) provision(ctx context.Context, s engine.Shape) (ContainerID, []string, error) {
	from, notes, err := e.prepare(ctx, s)
	if err != nil {
		return "", nil, err
	}
	own, err := e.memory(ctx, s)
	if err != nil {
		return "", nil, err
	}
	shape := shapeOf(s, from, own)
	var id ContainerID
	group, grouped := errgroup.WithContext(ctx)
	if s.Workspace.Bind == "" && s.Workspace.Size == 0 {
		group.Go(func() error {
			return e.copies.FillWorkspace(grouped, namePrefix+s.ID, s.Account.UID, s.Account.GID)
		})
	}
	group.Go(func() error {
		var err error
		id, err = e.create(grouped, shape, s.Exact)
		if err == nil && from.programs != "" {
			// The container keeps the volume from now on. If it was removed before, the engine
			// has made an empty one, which this fills.
			_, err = e.copies.Programs(grouped, s.Image)
		}
		if err == nil {
			err = e.pinnedCaches(grouped, s)
		}
		return err
	})
	if err := group.Wait(); err != nil {
		return "", nil, errors.Join(err, e.discard(ctx, shape.Name))
	}
	id, err = e.boot(ctx, shape, id, func(ctx context.Context) error {
		err := e.copies.Refill(ctx, s.Image.Arch)
		if from.accounts != "" {
			err = errors.Join(err, e.copies.RefillAccounts(ctx, s.Image, s.Account))
		}
		return err
	})
	return id, notes, err
}

// create creates a container. Where it has to be exact, a warning is a refusal.
func (e *Engine) create(ctx context.Context, shape Container, exact bool) (ContainerID, error) {
	id, warnings, err := e.containers.CreateContainer(ctx, shape)
	if err == nil && len(warnings) > 0 && exact {
		err = fmt.Errorf("the engine would not give all that was asked for: %s", strings.Join(warnings, "; "))
	}
	return id, err
}

// prepare makes the session's volumes, still empty, and finds those that it shares.
func (e *Engine) prepare(ctx context.Context, s engine.Shape) (from shared, notes []string, err error) {
	group, ctx := errgroup.WithContext(ctx)
	if s.Workspace.Bind == "" {
		group.Go(func() error { return e.volumes.CreateVolume(ctx, workspaceVolume(s)) })
	}
	group.Go(func() error {
		return e.volumes.CreateVolume(ctx, Volume{Name: namePrefix + s.ID + recordsSuffix, Labels: volumeLabels(s), Root: true})
	})
	group.Go(func() (err error) {
		from.runner, err = e.copies.Runner(ctx, s.Image.Arch)
		return err
	})
	group.Go(func() error { return e.makeCaches(ctx, s) })
	if s.Programs {
		group.Go(func() (err error) {
			from.programs, err = e.copies.Programs(ctx, s.Image)
			return err
		})
	}
	if s.Names {
		group.Go(func() error {
			volume, note, err := e.copies.Accounts(ctx, s.Image, s.Account)
			if err != nil && ctx.Err() != nil {
				return err
			}
			if err != nil { // a session is of use without one
				note = "the session's user may have no name in this image: " + err.Error()
			}
			if from.accounts = volume; note != "" {
				notes = append(notes, note)
			}
			return nil
		})
	}
	return from, notes, group.Wait()
}

// volumeLabels are those of every volume that ends with the session.
func volumeLabels(s engine.Shape) map[string]string {
	return withLabels(s.Made, s.ID, roleWorkspace)
}

// withLabels adds the labels that make something one of a session.
func withLabels(labels map[string]string, id, role string) map[string]string {
	all := map[string]string{labelSession: id, labelRole: role}
	for key, value := range labels {
		if key != labelSession && key != labelRole {
			all[key] = value
		}
	}
	return all
}

func workspaceVolume(s engine.Shape) Volume {
	v := Volume{Name: namePrefix + s.ID, Labels: volumeLabels(s)}
	maps.Copy(v.Labels, s.Draft)
	if s.Workspace.Size > 0 {
		// The one hard limit that every engine has: a file system of that size.
		v.Options = tmpfsVolume(fmt.Sprintf("size=%d,uid=%d,gid=%d,mode=755,nosuid,nodev", s.Workspace.Size, s.Account.UID, s.Account.GID))
	}
	return v
}

// tmpfsVolume are the local driver's options for a volume in memory.
func tmpfsVolume(options string) map[string]string {
	return map[string]string{"type": "tmpfs", "device": "tmpfs", "o": options}
}

// memory returns the mounts of type tmpfs of the session. Those that the engine cannot
// make so it moves into volumes of that type, which every engine can make.
func (e *Engine) memory(ctx context.Context, s engine.Shape) ([]specs.Mount, error) {
	plain, err := e.volumes.plainTmpfs(ctx)
	if err != nil || !plain {
		return s.Spec.Mounts, err
	}
	out := slices.Clone(s.Spec.Mounts)
	for i, m := range out {
		if m.Type != "tmpfs" || !slices.ContainsFunc(m.Options, beyondPlain) {
			continue
		}
		suffix := homeSuffix
		if m.Destination == "/tmp" {
			suffix = tmpSuffix
		}
		v := Volume{Name: namePrefix + s.ID + suffix, Labels: volumeLabels(s), Options: tmpfsVolume(strings.Join(m.Options, ","))}
		if err := e.volumes.CreateVolume(ctx, v); err != nil {
			return nil, err
		}
		out[i] = readWrite(v.Name, m.Destination)
	}
	return out, nil
}

// beyondPlain reports whether an option of tmpfs is one that plainTmpfs is about.
func beyondPlain(option string) bool {
	name, _, _ := strings.Cut(option, "=")
	return name == "uid" || name == "gid" || name == "nr_inodes"
}

// All volumes are mounted with nocopy: an image that has something in their place would
// fill them.

func readWrite(volume, at string) specs.Mount {
	return specs.Mount{Type: "volume", Source: volume, Destination: at, Options: []string{"nocopy"}}
}

func readOnly(volume, at string) specs.Mount {
	return specs.Mount{Type: "volume", Source: volume, Destination: at, Options: []string{"ro", "nocopy"}}
}

// bind is a mount of a directory of the engine's machine.
func bind(dir, at string, readOnly bool) specs.Mount {
	m := specs.Mount{Type: "bind", Source: dir, Destination: at}
	if readOnly {
		m.Options = []string{"ro"}
	}
	return m
}

// shapeOf is the container of a session. own are its mounts in memory.
func shapeOf(s engine.Shape, from shared, own []specs.Mount) Container {
	mounts := append([]specs.Mount{readOnly(from.runner, engine.RunnerDir)}, own...)
	mounts = append(mounts, readWrite(namePrefix+s.ID+recordsSuffix, s.Records))
	if from.programs != "" {
		mounts = append(mounts, readOnly(from.programs, engine.ProgramsDir))
	}
	if from.accounts != "" {
		mounts = append(mounts, readOnly(from.accounts, engine.AccountsDir))
	}
	w := s.Workspace
	switch {
	case w.Bind == "":
		mounts = append(mounts, readWrite(namePrefix+s.ID, w.Target))
	default:
		mounts = append(mounts, bind(w.Bind, w.Target, w.ReadOnly))
	}
	mounts = append(mounts, extraMounts(s)...)
	c := containerOf(s.ID, s.Image.ID, s.Confinement, mounts)
	c.Labels = containerLabels(s.ID, s.Labels(engine.Overlays{Programs: from.programs != "", Accounts: from.accounts != ""}), c.Spec)
	return c
}

func containerLabels(id string, labels map[string]string, spec specs.Spec) map[string]string {
	all := withLabels(labels, id, roleSession)
	all[labelDigest] = specDigest(spec)
	return all
}

// specDigest is over the values of a spec: two equal ones have the same.
func specDigest(spec specs.Spec) string {
	b, err := json.Marshal(spec)
	if err != nil {
		panic(err) // plain fields only: cannot happen
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
