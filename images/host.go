package images

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"

	"github.com/sandboxbash/sandboxbash/engine"
)

// snapshotVersion changes whenever a snapshot of the same files gets another content.
const snapshotVersion = "4"

// HostError says why a snapshot of this machine's programs cannot be made.
type HostError struct {
	Reason string
	Ref    string // of the snapshot; "" is HostRef

	LoadWith string // of Options
}

func (e *HostError) Error() string {
	return fmt.Sprintf("image %q cannot be made here: %s; use an image from a registry, such as debian:stable-slim, or put one on the engine%s", cmp.Or(e.Ref, HostRef), e.Reason, with(e.LoadWith))
}

// snapshot is this machine's programs as an image.
type snapshot struct {
	*tree
	hash  string           // hex
	tools map[string]int64 // that were added; bytes
}

func (s *snapshot) ref() string { return hostRepo + ":" + s.hash[:12] }

// Host returns the snapshot of this machine's own programs. It makes the snapshot if it
// is missing or if the programs have changed since. It needs no network. The error is a
// *HostError if this machine is not a linux machine of the engine's architecture, or has
// no bash.
func (r *Resolver) Host(ctx context.Context, progress func(engine.Progress)) (engine.Image, error) {
	return r.hostNamed(ctx, HostRef, progress)
}

// HostWith is Host for a snapshot with tools of KnownTools, the one that the reference of HostWithRef
// names. The error is a *ToolError if a tool is not known, and a *HostError if this machine does not have it
// where it can be taken from.
func (r *Resolver) HostWith(ctx context.Context, tools []string, progress func(engine.Progress)) (engine.Image, error) {
	ref, err := HostWithRef(tools)
	if err != nil {
		return engine.Image{}, err
	}
	return r.hostNamed(ctx, ref, progress)
}

// hostNamed makes the snapshot of a reference that was parsed.
func (r *Resolver) hostNamed(ctx context.Context, ref string, progress func(engine.Progress)) (engine.Image, error) {
	return r.images.Do(ctx, ref, progress, func(ctx context.Context, tell func(engine.Progress)) (engine.Image, error) {
		img, err := r.host(ctx, ref, tell)
		if bad, ok := errors.AsType[*HostError](err); ok {
			bad.LoadWith, bad.Ref = r.loadWith, ref
		}
		return img, err
	})
}

func (r *Resolver) host(ctx context.Context, ref string, tell func(engine.Progress)) (engine.Image, error) {
	tools := toolsOf(ref)
	now := stamp(tools...)
	if hash := r.remembered(now, tools...); hash != "" {
		if img, err := r.snapshotImage(ctx, hash); err == nil {
			return img, nil
		}
	}
	info, err := r.engine.Info(ctx)
	if err != nil {
		return engine.Image{}, fmt.Errorf("image %q: %w", ref, err)
	}
	if err := canSnapshot(runtime.GOOS, runtime.GOARCH, info); err != nil {
		return engine.Image{}, err
	}
	snap, err := r.snapshot(ctx, tools)
	if err != nil {
		return engine.Image{}, err
	}
	img, err := r.snapshotImage(ctx, snap.hash)
	if errors.Is(err, engine.ErrNotFound) {
		img, err = r.importSnapshot(ctx, snap, tell)
	}
	if err != nil {
		return engine.Image{}, fmt.Errorf("image %q: %w", ref, err)
	}
	r.remember(now, snap.hash, tools...)
	return img, nil
}

// snapshotImage finds the image of a snapshot. An image of that name with another content
// counts as not found, and so does one that is still being made.
func (r *Resolver) snapshotImage(ctx context.Context, hash string) (engine.Image, error) {
	img, err := r.engine.Image(ctx, hostRepo+":"+hash[:12])
	if err == nil && (img.Labels[labelDigest] != hash || img.Arch != runtime.GOARCH) {
		return engine.Image{}, engine.ErrNotFound
	}
	return img, err
}

func canSnapshot(goos, goarch string, info engine.Info) error {
	if goos != "linux" {
		return &HostError{Reason: "this machine runs " + goos + ", and a container needs linux programs"}
	}
	if goarch != info.Arch {
		return &HostError{Reason: fmt.Sprintf("this machine is %s and the engine's is %s", goarch, info.Arch)}
	}
	return nil
}

// importSnapshot streams the snapshot to the engine.
func (r *Resolver) importSnapshot(ctx context.Context, snap *snapshot, tell func(engine.Progress)) (engine.Image, error) {
	labels := map[string]string{engine.LabelRole: engine.RoleSnapshot, labelDigest: snap.hash, labelMaker: r.maker()}
	if len(snap.tools) > 0 {
		sizes, err := json.Marshal(snap.tools)
		if err != nil {
			return engine.Image{}, err
		}
		labels[labelTools] = string(sizes)
	}
	total := snap.size()
	pr, pw := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		pw.CloseWithError(snap.write(ctx, pw, func(n int64) {
			tell(engine.Progress{ID: HostRef, Status: "copying this machine's programs", Current: n, Total: total})
		}))
	}()
	id, err := r.engine.ImportImage(ctx, pr, engine.ImageConfig{
		Ref:    snap.ref(),
		OS:     "linux",
		Arch:   runtime.GOARCH,
		Labels: labels,
	})
	pr.CloseWithError(errors.New("the engine stopped reading"))
	<-done
	if err != nil {
		return engine.Image{}, err
	}
	return r.engine.Image(ctx, string(id))
}

// newSnapshot looks at this machine's programs, and the tools of these names. It reads ELF headers and
// package lists; the files themselves are read when the snapshot is written.
func newSnapshot(ctx context.Context, tools []string) (*snapshot, error) {
	t := newTree()
	for _, path := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		t.add(path) // links into /usr, where it is merged
	}
	c := collector{tree: t, linker: newLinker(runtime.GOARCH)}
	if err := c.collect(ctx); err != nil {
		return nil, err
	}
	sizes, err := c.addTools(ctx, tools)
	if err != nil {
		return nil, err
	}
	synthesise(t)
	if archive := localeArchive(ctx, t); archive != nil {
		t.make(localeArchivePath, 0o644, string(archive))
	}
	t.make(ldCachePath, 0o644, string(ldCache(runtime.GOARCH, t.libraries(runtime.GOARCH))))
	t.shorten(engine.ProgramsDir)
	return &snapshot{tree: t, hash: t.digest(snapshotVersion), tools: sizes}, nil
}

// The accounts of a snapshot. None of this machine's are in it.
const (
	passwdFile = `root:x:0:0:root:/root:/bin/bash
agent:x:1000:1000:agent:/home/agent:/bin/bash
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
`
	groupFile = `root:x:0:
tty:x:5:
agent:x:1000:
nogroup:x:65534:
`
	nsswitchFile = `passwd: files
group: files
shadow: files
hosts: files dns
networks: files
protocols: files
services: files
`
	hostsFile = `127.0.0.1 localhost
::1 localhost ip6-localhost ip6-loopback
`
)

func synthesise(t *tree) {
	for path, content := range map[string]string{
		"/etc/passwd": passwdFile, "/etc/group": groupFile, "/etc/nsswitch.conf": nsswitchFile, "/etc/hosts": hostsFile,
	} {
		t.make(path, 0o644, content)
	}
	for _, dir := range []string{"/proc", "/sys", "/dev", "/run", "/root", "/home/agent", "/workspace", "/mnt", "/opt", "/srv"} {
		t.make(dir, fs.ModeDir|0o755, "")
	}
	for _, dir := range []string{"/tmp", "/var/tmp"} {
		t.make(dir, fs.ModeDir|fs.ModeSticky|0o777, "")
	}
}
