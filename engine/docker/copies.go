package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/flight"
)

// copies makes what sessions share: volumes that are filled once, and images of helpers.
// The real one is a copier.
type copies interface {
	// Runner returns the volume with the runner for an architecture, and Refill fills that
	// volume again when it has turned out to be empty.
	Runner(ctx context.Context, arch string) (volume string, err error)
	Refill(ctx context.Context, arch string) error
	// Programs returns the volume to lay over the image's ProgramsDir, or "".
	Programs(ctx context.Context, img engine.Image) (volume string, err error)
	// Accounts returns the volume to lay over the image's AccountsDir, in which the account
	// has a name; or "", and what the owner of the session should know of that, if anything.
	// RefillAccounts fills that volume again.
	Accounts(ctx context.Context, img engine.Image, a engine.Account) (volume, note string, err error)
	RefillAccounts(ctx context.Context, img engine.Image, a engine.Account) error
	// Helper returns the image that holds the runner alone.
	Helper(ctx context.Context, arch string) (engine.Image, error)
	// FillWorkspace makes a user the owner of a fresh volume.
	FillWorkspace(ctx context.Context, volume string, uid, gid uint32) error
	// ClearWorkspace empties a volume that the engine cannot remove, and ReleaseWorkspace
	// removes the containers that filling or clearing it has left.
	ClearWorkspace(ctx context.Context, volume string) error
	ReleaseWorkspace(ctx context.Context, volume string) error
	// Prune removes what is no longer needed: see Engine.Prune.
	Prune(ctx context.Context) ([]string, error)
}

// copier fills volumes by creating containers: when a container is created with an
// empty volume, the engine copies what the image has there into it.
type copier struct {
	containers containers
	volumes    volumes
	images     images
	runner     func(arch string) (engine.Content, error)

	fills flight.Group[string] // by the volume's name
}

func newCopier(c *Client, runner func(arch string) (engine.Content, error)) *copier {
	return &copier{containers: c, volumes: c, images: c, runner: runner}
}

// images are the calls of Client on images that filling volumes takes.
type images interface {
	Image(ctx context.Context, ref string) (engine.Image, error)
	Images(ctx context.Context) ([]engine.Image, error)
	LoadImages(ctx context.Context, archive io.Reader, progress func(engine.Progress)) ([]string, error)
	RemoveImage(ctx context.Context, ref string) error
}

// Prefixes of the names of the volumes that are kept between sessions.
const (
	runnerPrefix   = namePrefix + "runner-" // and the content's ID
	programsPrefix = namePrefix + "programs-"
	accountsPrefix = namePrefix + "accounts-"
)

func roleLabels(role string) map[string]string { return map[string]string{labelRole: role} }

func runnerContent(c engine.Content) content {
	return content{volume: runnerPrefix + c.ID, dir: engine.RunnerDir, role: roleRunner}
}

// Runner returns the name of the volume that holds the runner for a linux architecture in
// GOARCH form. It makes the volume if it is missing, once per engine, however many callers
// in this process and others ask for it. Sessions mount the volume at engine.RunnerDir,
// read-only and without copying from their image.
func (s *copier) Runner(ctx context.Context, arch string) (volume string, err error) {
	runner, err := s.runner(arch)
	if err != nil {
		return "", err
	}
	return s.filledVolume(ctx, runnerContent(runner), func(ctx context.Context) (engine.ImageID, error) { return s.runnerImage(ctx, runner, arch) })
}

// Refill fills the runner's volume again. Callers use it when a session's container does
// not start because the runner is missing: another program has removed or emptied the
// volume. A volume that sessions use is filled in place, and only if it is empty; any
// other is made again.
func (s *copier) Refill(ctx context.Context, arch string) error {
	runner, err := s.runner(arch)
	if err != nil {
		return err
	}
	c := runnerContent(runner)
	_, err = s.fills.Do(ctx, c.volume+" again", nil, func(ctx context.Context, _ func(engine.Progress)) (string, error) {
		id, err := s.runnerImage(ctx, runner, arch)
		if err != nil {
			return "", err
		}
		return "", s.fill(ctx, c, id)
	})
	return err
}

// Helper returns the image that holds only the runner for an architecture in GOARCH form.
// It makes the image if it is missing. It is for containers in which only our own
// programs run.
func (s *copier) Helper(ctx context.Context, arch string) (engine.Image, error) {
	runner, err := s.runner(arch)
	if err != nil {
		return engine.Image{}, err
	}
	id, err := s.runnerImage(ctx, runner, arch)
	return engine.Image{ID: id, OS: "linux", Arch: arch}, err
}

// runnerImage makes the image from which the runner's volume is filled.
func (s *copier) runnerImage(ctx context.Context, c engine.Content, arch string) (engine.ImageID, error) {
	var layer bytes.Buffer
	if err := c.Write(&layer); err != nil {
		return "", err
	}
	img := smallImage{ref: engine.RunnerRepo + ":" + c.ID, arch: arch, labels: roleLabels(roleRunner), layer: layer.Bytes()}
	return img.ensure(ctx, s.images)
}

// staleAge is how old a runner of another version must be to be removed: that version of
// this program may still use it from time to time.
const staleAge = 7 * 24 * time.Hour

// Prune removes the volumes of programs whose image is gone, and the volumes and images of
// old runners.
func (s *copier) Prune(ctx context.Context) (gone []string, err error) {
	programs, err := s.volumes.Volumes(ctx, roleLabels(rolePrograms))
	if err != nil {
		return nil, fmt.Errorf("volumes: %w", err)
	}
	var errs []error
	for _, v := range programs {
		digits, ok := strings.CutPrefix(v.Name, programsPrefix)
		if !ok || strings.HasSuffix(v.Name, markSuffix) {
			continue
		}
		if _, err := s.images.Image(ctx, digits); !errors.Is(err, engine.ErrNotFound) {
			continue
		}
		// The mark goes first, so that no process takes the volume for filled.
		removed, err := s.removeMarked(ctx, content{volume: v.Name, role: rolePrograms})
		if errs = append(errs, err); removed {
			gone = append(gone, v.Name)
		}
	}
	runners, err := s.volumes.Volumes(ctx, roleLabels(roleRunner))
	if err != nil {
		return gone, errors.Join(append(errs, err)...)
	}
	mine := map[string]bool{}
	for _, arch := range []string{"amd64", "arm64"} {
		if c, err := s.runner(arch); err == nil {
			mine[runnerPrefix+c.ID] = true
		}
	}
	for _, v := range runners {
		id, ok := strings.CutPrefix(v.Name, runnerPrefix)
		if !ok || strings.HasSuffix(v.Name, markSuffix) || mine[v.Name] || v.Created.IsZero() || time.Since(v.Created) < staleAge {
			continue
		}
		removed, err := s.removeMarked(ctx, content{volume: v.Name, role: roleRunner})
		if errs = append(errs, err); removed {
			gone = append(gone, v.Name)
			errs = append(errs, ignore(s.images.RemoveImage(ctx, engine.RunnerRepo+":"+id), engine.ErrNotFound, engine.ErrConflict))
		}
	}
	return gone, errors.Join(errs...)
}

// removeMarked removes a volume and its mark. If a container uses the volume, both stay.
func (s *copier) removeMarked(ctx context.Context, c content) (bool, error) {
	_, err := s.volumes.Volume(ctx, c.mark())
	marked := err == nil
	if err := ignore(s.volumes.RemoveVolume(ctx, c.mark()), engine.ErrNotFound, engine.ErrConflict); err != nil {
		return false, c.wrap(err)
	}
	err = s.volumes.RemoveVolume(ctx, c.volume)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, engine.ErrNotFound):
		return false, nil
	case errors.Is(err, engine.ErrConflict) && marked:
		return false, s.volumes.CreateVolume(context.WithoutCancel(ctx), Volume{Name: c.mark(), Labels: roleLabels(c.role)})
	case errors.Is(err, engine.ErrConflict):
		return false, nil
	}
	return false, c.wrap(err)
}

// RemoveCopies removes the volumes that were filled from images that are gone.
// ErrConflict: a session uses the programs of one.
func (c *Client) RemoveCopies(ctx context.Context) error {
	s := newCopier(c, nil)
	return errors.Join(s.collect(ctx, programsPrefix), s.collectAccounts(ctx))
}

// RemoveAllCopies removes all that is kept between sessions: the volumes that sessions
// share, and the images that were made to fill volumes. It goes on after an error and
// returns all errors. ErrConflict: a session uses one of them.
func (c *Client) RemoveAllCopies(ctx context.Context) error {
	s := newCopier(c, nil)
	return errors.Join(
		s.removeImages(ctx),
		s.removeVolumes(ctx, runnerPrefix),
		s.removeVolumes(ctx, programsPrefix),
		s.removeVolumes(ctx, accountsPrefix),
	)
}

// removeVolumes removes the volumes whose names have a prefix. It does not go by label:
// an engine gives none to a volume that it makes while it creates a container.
func (s *copier) removeVolumes(ctx context.Context, prefix string) error {
	all, err := s.volumes.Volumes(ctx, nil)
	if err != nil {
		return fmt.Errorf("volumes: %w", err)
	}
	var errs []error
	for _, v := range all {
		if strings.HasPrefix(v.Name, prefix) {
			errs = append(errs, ignore(s.volumes.RemoveVolume(ctx, v.Name), engine.ErrNotFound))
		}
	}
	return errors.Join(errs...)
}

// removeImages removes the images that were made to fill volumes. They have both our
// label and one of our names: an image that is not ours can carry our labels.
func (s *copier) removeImages(ctx context.Context) error {
	list, err := s.images.Images(ctx)
	if err != nil {
		return fmt.Errorf("images: %w", err)
	}
	var errs []error
	for _, img := range list {
		repo, ours := map[string]string{roleRunner: engine.RunnerRepo, roleWorkspace: engine.WorkspaceRepo}[img.Labels[labelRole]]
		if !ours {
			continue
		}
		for _, ref := range img.Refs {
			if strings.HasPrefix(ref, repo+":") {
				errs = append(errs, ignore(s.images.RemoveImage(ctx, ref), engine.ErrNotFound))
			}
		}
		if len(img.Refs) == 0 {
			errs = append(errs, ignore(s.images.RemoveImage(ctx, string(img.ID)), engine.ErrNotFound))
		}
	}
	return errors.Join(errs...)
}
