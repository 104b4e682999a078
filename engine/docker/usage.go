package docker

import (
	"context"
	"encoding/json"

	"github.com/docker/docker/api/types/container"

	"github.com/sandboxbash/sandboxbash/engine"
)

// ContainerUsage asks the engine for one sample of a container's counters.
func (c *Client) ContainerUsage(ctx context.Context, id ContainerID) (engine.Usage, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	op := "usage of container " + string(id)
	reply, err := c.api.ContainerStatsOneShot(ctx, string(id))
	if err != nil {
		return engine.Usage{}, fail(ctx, op, err)
	}
	defer reply.Body.Close()
	var s container.StatsResponse
	if err := json.NewDecoder(reply.Body).Decode(&s); err != nil {
		return engine.Usage{}, fail(ctx, op, err)
	}
	use := engine.Usage{
		Pids: int64(s.PidsStats.Current), PidsLimit: int64(s.PidsStats.Limit),
		Memory: int64(s.MemoryStats.Usage), MemoryLimit: int64(s.MemoryStats.Limit),
	}
	// The page cache goes before anything is killed; both cgroup versions name
	// its inactive part.
	for _, key := range []string{"total_inactive_file", "inactive_file"} {
		if cache, ok := s.MemoryStats.Stats[key]; ok {
			use.Memory -= min(use.Memory, int64(cache))
			break
		}
	}
	return use, nil
}

// LimitContainer sets the limits of u that are not zero, from now on. Processes beyond
// PidsLimit go on.
func (c *Client) LimitContainer(ctx context.Context, id ContainerID, u engine.Usage) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var to container.Resources
	if u.PidsLimit != 0 {
		to.PidsLimit = &u.PidsLimit
	}
	if u.MemoryLimit != 0 {
		to.Memory, to.MemorySwap = u.MemoryLimit, u.MemoryLimit // without swap
	}
	_, err := c.api.ContainerUpdate(ctx, string(id), container.UpdateConfig{Resources: to})
	return fail(ctx, "limit container "+string(id), err)
}
