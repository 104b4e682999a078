package images

import (
	"context"
	"strings"

	"github.com/sandboxbash/sandboxbash/engine"
)

// ProgramsDir is what a volume of programs stands in for.
const ProgramsDir = "/usr"

// Programs returns the name of a volume that holds what a snapshot of this
// machine has in ProgramsDir, and makes it where it is missing. Sessions mount it
// there, read-only and without copying. It is "" where the image is used as it
// is: where it is no snapshot, or the engine's storage is quick to look things up.
//
// An engine whose storage driver is a process of its own (FUSE) asks it for each
// file that a program opens, at 20 µs and more; a volume lies on the machine's
// own file system. See docs/adr/0008.
func (r *Resolver) Programs(ctx context.Context, img engine.Image) (volume string, err error) {
	if img.Labels[labelRole] != roleHost {
		return "", nil
	}
	info, err := r.engine.Info(ctx)
	if err != nil || !strings.Contains(info.StorageDriver, "fuse") {
		return "", err
	}
	c := content{volume: programsPrefix + digits(img.ID), dir: ProgramsDir, role: rolePrograms}
	return r.filledVolume(ctx, c, func(context.Context) (engine.ImageID, error) { return img.ID, nil })
}

// digits returns twelve hex digits of an image ID.
func digits(id engine.ImageID) string {
	return strings.TrimPrefix(string(id), "sha256:")[:12]
}
