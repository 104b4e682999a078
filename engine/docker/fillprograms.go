package docker

import (
	"context"
	"strings"

	"github.com/sandboxbash/sandboxbash/engine"
)

// Programs returns the name of a volume that holds what a snapshot of this machine has in
// engine.ProgramsDir. It makes the volume if it is missing. Sessions mount it there,
// read-only and without copying. The name is "" if the image is used as it is: it is not a
// snapshot, or the engine's storage looks files up quickly.
//
// If the engine's storage driver is a process (FUSE), the kernel asks it for each file
// that a program opens, which takes 20 µs and more. A volume is on the machine's own
// file system. See docs/adr/0008.
func (s *copier) Programs(ctx context.Context, img engine.Image) (volume string, err error) {
	if img.Labels[labelRole] != engine.RoleSnapshot {
		return "", nil
	}
	info, err := s.containers.Info(ctx)
	if err != nil || !strings.Contains(info.StorageDriver, "fuse") {
		return "", err
	}
	c := content{volume: programsPrefix + digits(img.ID), dir: engine.ProgramsDir, role: rolePrograms}
	return s.filledVolume(ctx, c, func(context.Context) (engine.ImageID, error) { return img.ID, nil })
}

// digits returns twelve hex digits of an image ID.
func digits(id engine.ImageID) string {
	return strings.TrimPrefix(string(id), "sha256:")[:12]
}
