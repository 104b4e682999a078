package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/go-units"

	"github.com/sandboxbash/sandboxbash/engine"
)

// Podman speaks Docker's API, with differences. What follows is about those of Podman
// 4.3.1 that would weaken a session or break it.

// podmanTmp is where Podman lays a tmpfs without a size over every read-only
// root, besides /tmp and /run, which sessions have of their own.
const podmanTmp = "/var/tmp"

// forPodman rewrites what Podman would silently drop.
func forPodman(op string, host *container.HostConfig) error {
	// MaskedPaths is not read. ReadonlyPaths is not either, and cannot be added to:
	// Podman's own list is ours and more.
	if len(host.MaskedPaths) > 0 {
		host.SecurityOpt = append(host.SecurityOpt, "mask="+strings.Join(host.MaskedPaths, ":"))
	}
	host.MaskedPaths, host.ReadonlyPaths = nil, nil
	// NoCopy of a mount is not read: the image would fill the volume. The same
	// words at the end of a bind are.
	host.Mounts = slices.DeleteFunc(host.Mounts, func(m mount.Mount) bool {
		if m.Type != mount.TypeVolume {
			return false
		}
		var options []string
		if m.ReadOnly {
			options = append(options, "ro")
		}
		if m.VolumeOptions != nil && m.VolumeOptions.NoCopy {
			options = append(options, "nocopy")
		}
		bind := m.Source + ":" + m.Target
		if len(options) > 0 {
			bind += ":" + strings.Join(options, ",")
		}
		host.Binds = append(host.Binds, bind)
		return true
	})
	if host.Tmpfs == nil {
		host.Tmpfs = map[string]string{}
	}
	// What shadows the image's volumes: as a mount it would be filled from there.
	host.Mounts = slices.DeleteFunc(host.Mounts, func(m mount.Mount) bool {
		if m.Type != mount.TypeTmpfs {
			return false
		}
		access := "rw"
		if m.ReadOnly {
			access = "ro"
		}
		host.Tmpfs[m.Target] = fmt.Sprintf("%s,nosuid,nodev,size=%d", access, m.TmpfsOptions.SizeBytes)
		return true
	})
	if _, ok := host.Tmpfs[podmanTmp]; host.ReadonlyRootfs && !ok && !mountsAt(host, podmanTmp) {
		host.Tmpfs[podmanTmp] = "ro,nosuid,nodev,noexec,size=4k"
	}
	for at := range host.Tmpfs {
		host.Tmpfs[at] += ",notmpcopyup"
	}
	if n := pidMax(); len(host.Ulimits) > 0 && n > 0 {
		host.Ulimits = append(host.Ulimits, &units.Ulimit{Name: "nproc", Soft: n, Hard: n})
	}
	return colons(op, host)
}

// colons refuses paths that Podman would read as more than a path.
func colons(op string, host *container.HostConfig) error {
	for _, bind := range host.Binds {
		f := strings.Split(bind, ":")
		if len(f) > 3 || len(f) == 3 && slices.ContainsFunc(strings.Split(f[2], ","), func(o string) bool { return o != "ro" && o != "nocopy" }) {
			return invalid(op, "mount %s: Podman takes no colon in the path of a mount: choose another place", bind)
		}
	}
	for at := range host.Tmpfs {
		if strings.Contains(at, ":") {
			return invalid(op, "mount %s: Podman takes no colon in the path of a mount: choose another place, or another image if it is a VOLUME of that", at)
		}
	}
	return nil
}

// mountsAt reports whether a bind or a volume lies there.
func mountsAt(host *container.HostConfig, target string) bool {
	return slices.ContainsFunc(host.Mounts, func(m mount.Mount) bool { return m.Target == target }) ||
		slices.ContainsFunc(host.Binds, func(b string) bool {
			f := strings.Split(b, ":")
			return len(f) > 1 && f[1] == target
		})
}

// volumeForPodman returns the options of a volume for Podman. The size of a volume in
// memory is written in pages, which tmpfs(5) takes as well: Podman reads "size" as a quota
// of the disk's file system, and refuses it where that has none. A volume of uid 0's says
// so, or Podman would give it to the owner of the directory that it is first mounted over.
func volumeForPodman(v Volume) map[string]string {
	out := maps.Clone(v.Options)
	if v.Options["type"] == "tmpfs" {
		options := strings.Split(v.Options["o"], ",")
		for i, o := range options {
			if size, ok := strings.CutPrefix(o, "size="); ok {
				if n, err := units.RAMInBytes(size); err == nil {
					options[i] = fmt.Sprintf("nr_blocks=%d", (n+podmanPage-1)/podmanPage)
				}
			}
		}
		out["o"] = strings.Join(options, ",")
	} else if v.Root && len(v.Options) == 0 {
		out = map[string]string{"o": "uid=0,gid=0"}
	}
	return out
}

// podmanPage is the size of a page, at least; where pages are larger, so are
// volumes.
const podmanPage = 4096 // bytes

// pidMax is how many processes this machine's kernel can have, or 0 if that is not known.
// Given limits without nproc, Podman sets nproc to a million, which fails where it lacks
// CAP_SYS_RESOURCE, as root of a container does. As many as the kernel can have
// does not limit more.
func pidMax() int64 {
	text, err := os.ReadFile("/proc/sys/kernel/pid_max")
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// createOnPodman creates a container whose shape forPodman has changed.
func (c *Client) createOnPodman(ctx context.Context, op, name string, cfg *container.Config, host *container.HostConfig) (ContainerID, []string, error) {
	remove, err := c.seccompFile(op, host)
	if err != nil {
		return "", nil, err
	}
	defer remove()
	made, err := c.api.ContainerCreate(ctx, cfg, host, &network.NetworkingConfig{}, nil, name)
	if cerrdefs.IsInternal(err) {
		if _, e := c.Container(ctx, name); e == nil { // a name that is taken is answered so
			return "", nil, &engine.Error{Op: op, Kind: engine.ErrConflict, Err: err}
		}
	}
	if err != nil {
		return "", nil, fail(ctx, op, err)
	}
	id := ContainerID(made.ID)
	if err := c.checkRuntime(ctx, op, id, host.Runtime); err != nil {
		return "", nil, errors.Join(err, c.RemoveContainer(context.WithoutCancel(ctx), id))
	}
	if err := c.fillVolumes(ctx, op, id, host.Binds); err != nil {
		return "", nil, errors.Join(err, c.RemoveContainer(context.WithoutCancel(ctx), id))
	}
	return id, made.Warnings, nil
}

// checkRuntime refuses a container whose runtime is not the one that was asked for:
// Podman silently takes its own default.
func (c *Client) checkRuntime(ctx context.Context, op string, id ContainerID, want string) error {
	if want == "" {
		return nil
	}
	var made struct{ OCIRuntime string }
	if err := c.libpod(ctx, http.MethodGet, "/containers/"+string(id)+"/json", &made); err != nil {
		return fail(ctx, op, err)
	}
	if made.OCIRuntime != want {
		return invalid(op, "Podman gives containers its own runtime, %s, and not %s: set `runtime` in its containers.conf, or use a Docker engine",
			made.OCIRuntime, want)
	}
	return nil
}

// seccompFile writes a profile to a file and names that instead: Podman's server
// takes what follows "seccomp=" for a path on its machine, and reads it while
// the container is created. The caller removes the file after that.
func (c *Client) seccompFile(op string, host *container.HostConfig) (remove func(), err error) {
	const prefix = "seccomp="
	i := slices.IndexFunc(host.SecurityOpt, func(o string) bool { return strings.HasPrefix(o, prefix) })
	if i < 0 {
		return func() {}, nil
	}
	if c.url.Scheme != "unix" {
		return nil, invalid(op, "Podman reads a seccomp profile from a file of its own machine, and at %s that is another one: "+
			"run sandboxbash on Podman's machine, or use a Docker engine", c.address)
	}
	f, err := os.CreateTemp("", "sandboxbash-seccomp-*.json") // its mode is 0600
	if err != nil {
		return nil, fmt.Errorf("%s: seccomp profile for Podman: %w", op, err)
	}
	remove = func() { _ = os.Remove(f.Name()) }
	_, err = f.WriteString(strings.TrimPrefix(host.SecurityOpt[i], prefix))
	if err = errors.Join(err, f.Close()); err != nil {
		remove()
		return nil, fmt.Errorf("%s: seccomp profile for Podman: %w", op, err)
	}
	host.SecurityOpt[i] = prefix + f.Name()
	return remove, nil
}

// fillVolumes makes sure that an empty volume of a new container has what the image has
// at its mount point. Docker does that when it creates the container
// and Podman when it first mounts the volume, which preparing the container for
// its start is enough for, even one that has no program to start.
func (c *Client) fillVolumes(ctx context.Context, op string, id ContainerID, binds []string) error {
	var volumes []string
	for _, bind := range binds {
		if f := strings.Split(bind, ":"); !path.IsAbs(f[0]) && (len(f) < 3 || !slices.Contains(strings.Split(f[2], ","), "nocopy")) {
			volumes = append(volumes, f[0])
		}
	}
	if len(volumes) == 0 {
		return nil
	}
	before, err := c.untouched(ctx, volumes)
	if err != nil {
		return fail(ctx, op, err)
	}
	initErr := c.libpod(ctx, http.MethodPost, "/containers/"+string(id)+"/init", nil)
	if initErr == nil {
		return nil
	}
	after, err := c.untouched(ctx, volumes)
	if err != nil {
		return fail(ctx, op, err)
	}
	for _, name := range volumes {
		if !before[name] || after[name] {
			return fail(ctx, op, fmt.Errorf("volume %s was not filled by Podman: %w", name, initErr))
		}
	}
	return nil // all were mounted and filled, and then there was nothing to run
}

// untouched returns which volumes no container has mounted so far. When a volume is
// first mounted Podman fills it, and then gives it its owner.
func (c *Client) untouched(ctx context.Context, volumes []string) (map[string]bool, error) {
	out := map[string]bool{}
	for _, name := range volumes {
		var v struct{ NeedsChown bool }
		if err := c.libpod(ctx, http.MethodGet, "/volumes/"+url.PathEscape(name)+"/json", &v); err != nil {
			return nil, err
		}
		out[name] = v.NeedsChown
	}
	return out, nil
}

// libpodVersion is of Podman's own API; every later Podman speaks it.
const libpodVersion = "v4.0.0"

// libpod makes a call of Podman's own API, for what Docker's has no call for. A nil answer is not read.
func (c *Client) libpod(ctx context.Context, method, route string, answer any) error {
	req, err := c.request(ctx, method, route, http.NoBody)
	if err != nil {
		return err
	}
	req.URL.Path = path.Join("/", c.url.Path, libpodVersion, "libpod", route)
	req.URL.RawPath = ""
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusMultipleChoices && resp.StatusCode != http.StatusNotModified {
		return statusError(resp)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(http.MaxBytesReader(nil, resp.Body, maxInspect)).Decode(answer)
}

// plainTmpfs reports whether a mount of type tmpfs may have neither an owner ("uid",
// "gid") nor a number of files ("nr_inodes"). A volume of that type may have both.
func (c *Client) plainTmpfs(ctx context.Context) (bool, error) { return c.isPodman(ctx) }
