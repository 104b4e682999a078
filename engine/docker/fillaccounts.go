package docker

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// accountsMount is where such a volume is mounted while the runner fills it.
const accountsMount = "/.sandboxbash-accounts"

// labelAccounts is a label of a volume's mark. Its value is the outcome of the copy, one
// of the constants that follow.
const labelAccounts = "sandboxbash.accounts"

const (
	accountsMade   = "made"
	accountsNeeded = "not-needed"
	accountsLinks  = "links"
	accountsSize   = "size"
)

// accountsNotes tell the owner of a session why an image was not copied.
var accountsNotes = map[string]string{
	accountsLinks: "the session's user has no name in this image: its /etc, or passwd or group there, is a link or not a plain file, and is left as it is",
	accountsSize:  "the session's user has no name in this image: its /etc is larger than what is copied to add one",
}

// Accounts returns the name of a volume that holds the image's engine.AccountsDir, with
// entries for the user in passwd and group. It makes the volume if it is missing, once for
// an image and user: the runner fills it, in a container of the image in which no other
// program runs. Sessions mount it there, read-only and without copying. The name is "" if
// the image has the entries already; it is "" with a note if the image cannot be copied.
func (s *copier) Accounts(ctx context.Context, img engine.Image, u engine.Account) (volume, note string, err error) {
	c := accountsContent(img.ID, u)
	state, err := s.accountsState(ctx, c)
	if err == nil && state == "" {
		state, err = s.makeAccounts(ctx, c, img, u)
	}
	if err != nil {
		return "", "", err
	}
	if state == accountsMade {
		return c.volume, "", nil
	}
	return "", accountsNotes[state], nil
}

// RefillAccounts makes the content of such a volume again, in place. Callers use it when
// the volume is empty: another program removed it, and the engine made a new one.
func (s *copier) RefillAccounts(ctx context.Context, img engine.Image, u engine.Account) error {
	_, err := s.makeAccounts(ctx, accountsContent(img.ID, u), img, u)
	return err
}

func accountsContent(id engine.ImageID, u engine.Account) content {
	entry := sha256.Sum256([]byte(u.Name + ":" + u.Home))
	name := fmt.Sprintf("%s%s-%d-%d-%x", accountsPrefix, digits(id), u.UID, u.GID, entry[:4])
	return content{volume: name, dir: engine.AccountsDir, role: roleAccounts}
}

// accountsState returns what the mark says, or "" if the volume must be made. The mark is
// made last.
func (s *copier) accountsState(ctx context.Context, c content) (string, error) {
	_, err := s.volumes.Volume(ctx, c.volume)
	gone := errors.Is(err, engine.ErrNotFound)
	if err != nil && !gone {
		return "", c.wrap(err)
	}
	mark, err := s.volumes.Volume(ctx, c.mark())
	if errors.Is(err, engine.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", c.wrap(err)
	}
	state := mark.Labels[labelAccounts]
	if (state == accountsMade) == gone {
		return "", nil // one of the two was removed
	}
	return state, nil
}

// makeAccounts fills the volume and marks it, once per engine: the container's name is a
// lock, and a caller that finds it taken waits.
func (s *copier) makeAccounts(ctx context.Context, c content, img engine.Image, u engine.Account) (string, error) {
	return s.fills.Do(ctx, c.volume, nil, func(ctx context.Context, _ func(engine.Progress)) (string, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, fillPatience, fmt.Errorf("volume %s was not filled within %v", c.volume, fillPatience))
		defer cancel()
		runner, err := s.Runner(ctx, img.Arch)
		if err != nil {
			return "", err
		}
		shape := accountsShape(c, img.ID, runner, u)
		for begin := time.Now(); ; {
			state, err := s.makeAccountsOnce(ctx, c, shape)
			if !errors.Is(err, engine.ErrConflict) {
				_ = s.collectAccounts(ctx) // what it leaves, the next call collects
				return state, err
			}
			if err := s.releaseAccounts(ctx, c, time.Since(begin)); err != nil {
				return "", err
			}
			select {
			case <-ctx.Done():
				return "", context.Cause(ctx)
			case <-time.After(fillPoll):
			}
			if state, err := s.accountsState(ctx, c); err != nil || state != "" {
				return state, err
			}
		}
	})
}

// accountsShape is a container of the image whose only program is the runner.
func accountsShape(c content, id engine.ImageID, runner string, u engine.Account) Container {
	shape := filler(c.volume+fillerSuffix, id, specs.Mount{Source: c.volume, Destination: accountsMount, Options: []string{"nocopy"}})
	shape.Spec.Mounts = append(shape.Spec.Mounts, specs.Mount{Type: "volume", Source: runner, Destination: engine.RunnerDir, Options: []string{"ro", "nocopy"}})
	shape.Spec.Root.Readonly = true
	shape.Spec.Process.NoNewPrivileges = true
	shape.Spec.Process.Env = []string{"PATH=/"}
	args := wire.AccountsArgs{From: engine.AccountsDir, To: accountsMount, UID: u.UID, GID: u.GID, Name: u.Name, Home: u.Home}
	shape.Spec.Process.Args = append([]string{engine.RunnerPath}, wire.VerbAccounts.Command(&args)...)
	shape.Spec.Process.Capabilities = &specs.LinuxCapabilities{Bounding: []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER"}}
	return shape
}

// makeAccountsOnce returns an engine.ErrConflict while another process works on the
// volume, or if one died at it and left its container: see releaseAccounts.
func (s *copier) makeAccountsOnce(ctx context.Context, c content, shape Container) (string, error) {
	if err := s.volumes.CreateVolume(ctx, Volume{Name: c.volume, Labels: roleLabels(c.role)}); err != nil {
		return "", c.wrap(err)
	}
	id, _, err := s.containers.CreateContainer(ctx, shape)
	if errors.Is(err, engine.ErrConflict) {
		return "", c.wrap(err)
	}
	code := 0
	if err == nil {
		code, err = s.runFiller(ctx, id)
	}
	if errors.Is(err, engine.ErrNotFound) { // another has taken it for abandoned
		return "", c.wrap(errors.Join(engine.ErrConflict, err))
	}
	state := map[int]string{0: accountsMade, wire.ExitAccountsThere: accountsNeeded, wire.ExitAccountsOdd: accountsLinks, wire.ExitAccountsLarge: accountsSize}[code]
	if err == nil && state == "" {
		err = fmt.Errorf("copying the image's %s ended with %d", engine.AccountsDir, code)
	}
	err = errors.Join(err, s.removeFiller(ctx, ContainerID(shape.Name)))
	if err != nil || state != accountsMade {
		// A session may use it: then it is whole.
		err = errors.Join(err, ignore(s.volumes.RemoveVolume(context.WithoutCancel(ctx), c.volume), engine.ErrNotFound, engine.ErrConflict))
	}
	if err != nil {
		return "", c.wrap(err)
	}
	labels := roleLabels(c.role)
	labels[labelAccounts] = state
	// Labels cannot change: an older mark would keep its own.
	err = ignore(s.volumes.RemoveVolume(ctx, c.mark()), engine.ErrNotFound)
	return state, c.join(err, s.volumes.CreateVolume(ctx, Volume{Name: c.mark(), Labels: labels}))
}

func (c content) join(errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return c.wrap(err)
	}
	return nil
}

// runFiller runs a container to its end and returns its exit code.
func (s *copier) runFiller(ctx context.Context, id ContainerID) (int, error) {
	if err := s.containers.StartContainer(ctx, id); err != nil {
		return 0, err
	}
	if err := s.containers.WaitContainer(ctx, id); err != nil {
		return 0, err
	}
	state, err := s.containers.Container(ctx, string(id))
	return state.ExitCode, err
}

// abandonedAfter is how long a container may exist without running before it counts as
// abandoned: its maker starts it at once, and removes it when it has ended.
const abandonedAfter = 3 * time.Second

// releaseAccounts removes the container of a process that died at its work.
func (s *copier) releaseAccounts(ctx context.Context, c content, waited time.Duration) error {
	state, err := s.containers.Container(ctx, c.volume+fillerSuffix)
	if errors.Is(err, engine.ErrNotFound) {
		return nil
	}
	if err != nil {
		return c.wrap(err)
	}
	if !fills(state, c.volume) {
		return c.wrap(fmt.Errorf("%s is the name of a container that is not ours", state.Name))
	}
	if state.Status == "running" || waited < abandonedAfter {
		return nil
	}
	return s.removeFiller(ctx, state.ID)
}

// collectAccounts removes the volumes of images that are gone, as far as no session uses
// them.
func (s *copier) collectAccounts(ctx context.Context) error {
	return s.collect(ctx, accountsPrefix, engine.ErrConflict)
}

// collect removes the volumes whose names have a prefix and are of images that are gone.
// Errors of these kinds are none.
func (s *copier) collect(ctx context.Context, prefix string, but ...error) error {
	volumes, err := s.volumes.Volumes(ctx, nil)
	if err != nil {
		return fmt.Errorf("volumes: %w", err)
	}
	list, err := s.images.Images(ctx)
	if err != nil {
		return fmt.Errorf("images: %w", err)
	}
	present := map[string]bool{}
	for _, img := range list {
		present[digits(img.ID)] = true
	}
	var errs []error
	for _, v := range volumes {
		rest, ok := strings.CutPrefix(v.Name, prefix)
		id, _, _ := strings.Cut(rest, "-")
		if ok && !present[id] {
			errs = append(errs, ignore(s.volumes.RemoveVolume(ctx, v.Name), append(but, engine.ErrNotFound)...))
		}
	}
	return errors.Join(errs...)
}
