package docker

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/docker/docker/api/types"

	"github.com/sandboxbash/sandboxbash/engine"
)

// stockTime bounds the question how much room everything takes: an engine then reads all of its volumes.
const stockTime = 2 * time.Minute

// stock is the call of Client that measures what is on the engine.
type stock interface {
	Measure(ctx context.Context) (Measured, error)
}

// Measured is what the engine holds, with sizes. Objects of other programs are among it.
type Measured struct {
	Volumes    []MeasuredVolume
	Containers []MeasuredContainer
	Images     []MeasuredImage
}

// MeasuredVolume is a volume. A negative number is not known.
type MeasuredVolume struct {
	Volume
	Bytes int64
	Users int64 // containers that have it
}

// MeasuredContainer is a container, with the size of what it has changed of its image.
type MeasuredContainer struct {
	Name   string
	Labels map[string]string
	Bytes  int64
}

// MeasuredImage is an image. Layers that several images share count for each.
type MeasuredImage struct {
	Refs   []string
	Labels map[string]string
	Bytes  int64
	Users  int64 // containers that have it; negative: not known
}

// Measure asks the engine for the sizes of all that it holds. It may take minutes, and reads only.
func (c *Client) Measure(ctx context.Context) (Measured, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, stockTime, fmt.Errorf("the engine did not tell within %v: %w", stockTime, context.DeadlineExceeded))
	defer cancel()
	du, err := c.api.DiskUsage(ctx, types.DiskUsageOptions{Types: []types.DiskUsageObject{types.VolumeObject, types.ContainerObject, types.ImageObject}})
	if err != nil {
		return Measured{}, fail(ctx, "measure what is on the engine", err)
	}
	var m Measured
	for _, v := range du.Volumes {
		if v == nil {
			continue
		}
		one := MeasuredVolume{Volume: volumeOf(v), Bytes: -1, Users: -1}
		if v.UsageData != nil {
			one.Bytes, one.Users = v.UsageData.Size, v.UsageData.RefCount
		}
		m.Volumes = append(m.Volumes, one)
	}
	for _, one := range du.Containers {
		if one != nil && len(one.Names) > 0 {
			m.Containers = append(m.Containers, MeasuredContainer{Name: strings.TrimPrefix(one.Names[0], "/"), Labels: one.Labels, Bytes: one.SizeRw})
		}
	}
	for _, img := range du.Images {
		if img != nil {
			m.Images = append(m.Images, MeasuredImage{Refs: img.RepoTags, Labels: img.Labels, Bytes: img.Size, Users: img.Containers})
		}
	}
	return m, nil
}

// Stored returns what this program has stored on the engine.
func (e *Engine) Stored(ctx context.Context) ([]engine.Stored, error) {
	m, err := e.stock.Measure(ctx)
	if err != nil {
		return nil, err
	}
	return storedOf(m), nil
}

// storedOf picks what is ours, by label and name: an image can carry our labels.
func storedOf(m Measured) []engine.Stored {
	sessions := map[string]*engine.Stored{}
	at := func(id string) *engine.Stored {
		if sessions[id] == nil {
			sessions[id] = &engine.Stored{Kind: engine.StoredKept, Name: id}
		}
		return sessions[id]
	}
	for _, c := range m.Containers {
		id := c.Labels[labelSession]
		if c.Labels[labelRole] != roleSession || !engine.ValidID(id) || c.Name != namePrefix+id {
			continue
		}
		s := at(id)
		s.Kind, s.InUse = engine.StoredSession, true
		s.Add(c.Bytes)
	}
	var all []engine.Stored
	for _, v := range m.Volumes {
		if c, ok := cacheOf(v.Volume); ok {
			all = append(all, engine.Stored{Kind: engine.StoredCache, Name: c.Name, Bytes: v.Bytes, InUse: v.Users > 0})
			continue
		}
		id := v.Labels[labelSession]
		switch v.Labels[labelRole] {
		case roleWorkspace, roleKept:
			if engine.ValidID(id) && strings.HasPrefix(v.Name, namePrefix+id) {
				at(id).Add(v.Bytes)
			}
		case roleRunner, rolePrograms, roleAccounts:
			if !strings.HasSuffix(v.Name, markSuffix) && strings.HasPrefix(v.Name, namePrefix) {
				all = append(all, engine.Stored{Kind: engine.StoredShared, Name: v.Name, Bytes: v.Bytes, InUse: v.Users > 0})
			}
		}
	}
	for _, img := range m.Images {
		for _, ref := range img.Refs {
			if strings.HasPrefix(ref, ownRepos) {
				all = append(all, engine.Stored{Kind: engine.StoredImage, Name: ref, Bytes: img.Bytes, InUse: img.Users > 0})
				break
			}
		}
	}
	for _, s := range sessions {
		all = append(all, *s)
	}
	return all
}

// ownRepos is how the names of the images begin that this program makes.
const ownRepos = "sandboxbash/"
