package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sync/errgroup"

	"github.com/sandboxbash/sandboxbash/engine"
)

// A session has two volumes that end with it: its workspace, unless that is a
// directory of the host, and what its jobs have written. Where the engine's
// tmpfs cannot be what /tmp and the home are to be, there are two more, in memory.

// Suffixes of the names of volumes.
const (
	jobsSuffix = "-jobs"
	tmpSuffix  = "-tmp"
	homeSuffix = "-home"
)

// sessionVolumes are the names of a session's volumes, those included that few
// sessions have.
func sessionVolumes(id string) []string {
	return []string{namePrefix + id, namePrefix + id + jobsSuffix, namePrefix + id + tmpSuffix, namePrefix + id + homeSuffix}
}

// volumeLabels make a volume one of a session.
func volumeLabels(id string) map[string]string {
	return map[string]string{
		LabelSession: id, labelOwner: self().String(), labelCreated: time.Now().UTC().Format(time.RFC3339Nano), labelRole: "workspace",
	}
}

// makeJobsVolume makes the volume of jobs: on disk, and uid 0's.
func (e *Engine) makeJobsVolume(ctx context.Context, id string) error {
	return e.docker.CreateVolume(ctx, engine.Volume{Name: namePrefix + id + jobsSuffix, Labels: volumeLabels(id), Root: true})
}

// inVolumes moves the mounts of type tmpfs that the engine cannot make into
// volumes of that type, which it makes.
func (e *Engine) inVolumes(ctx context.Context, id string, all []specs.Mount) ([]specs.Mount, error) {
	out := slices.Clone(all)
	for i, m := range out {
		if m.Type != "tmpfs" || !slices.ContainsFunc(m.Options, beyondPlain) {
			continue
		}
		suffix := homeSuffix
		if m.Destination == "/tmp" {
			suffix = tmpSuffix
		}
		v := engine.Volume{Name: namePrefix + id + suffix, Labels: volumeLabels(id), Options: map[string]string{
			"type": "tmpfs", "device": "tmpfs", "o": strings.Join(m.Options, ","),
		}}
		if err := e.docker.CreateVolume(ctx, v); err != nil {
			return nil, err
		}
		out[i] = specs.Mount{Type: "volume", Source: v.Name, Destination: m.Destination, Options: []string{"nocopy"}}
	}
	return out, nil
}

// beyondPlain tells the options that engine.Info's PlainTmpfs is about.
func beyondPlain(option string) bool {
	name, _, _ := strings.Cut(option, "=")
	return name == "uid" || name == "gid" || name == "nr_inodes"
}

// removeVolumes removes those of a session's volumes that there are.
func (e *Engine) removeVolumes(ctx context.Context, id string) error {
	var group errgroup.Group
	for _, name := range sessionVolumes(id) {
		group.Go(func() error {
			if err := e.removeVolume(ctx, name); err != nil && !errors.Is(err, engine.ErrNotFound) {
				return err
			}
			return nil
		})
	}
	return group.Wait()
}

// discardVolumes takes back what the start of a session may have made.
func (e *Engine) discardVolumes(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	return e.removeVolumes(ctx, id)
}

// newKey makes a key for sealing the records of a session's jobs.
func newKey() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	return hex.EncodeToString(key)
}

// decodeKey returns nil for what is no key.
func decodeKey(text string) []byte {
	key, err := hex.DecodeString(text)
	if err != nil || len(key) == 0 {
		return nil
	}
	return key
}
