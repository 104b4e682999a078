package docker

import (
	"encoding/json"
	"net/http"
	"testing"
)

// Every engine on cgroups of version 2 warns of a swappiness, and a session that has to be exact takes a warning
// for a limit that was dropped.
func TestCreateSwappiness(t *testing.T) {
	t.Parallel()
	const limit = 2 << 30
	for _, row := range []struct {
		name, cgroups string
		swap          int64
		want          bool
	}{
		{"version 1", "1", limit, true},
		{"version 2", "2", limit, false},
		{"version 2, where something can be swapped", "2", 2 * limit, true},
	} {
		var body struct {
			HostConfig struct{ MemorySwappiness *int64 }
		}
		c := fakeClient(t, map[string]http.HandlerFunc{
			"GET /v1.41/version":          answer(200, `{"Components":[{"Name":"Engine","Version":"28.5.2"}]}`),
			"GET /v1.41/info":             answer(200, `{"CgroupVersion":"`+row.cgroups+`"}`),
			"GET /v1.41/images/{id}/json": answer(200, `{"Id":"sha256:1","Config":{}}`),
			"POST /v1.41/containers/create": func(w http.ResponseWriter, r *http.Request) {
				if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
					t.Error(err)
				}
				answer(201, `{"Id":"c"}`)(w, r)
			},
		})
		shape := fullShape()
		*shape.Spec.Linux.Resources.Memory.Limit, *shape.Spec.Linux.Resources.Memory.Swap = limit, row.swap
		if _, _, err := c.CreateContainer(t.Context(), shape); err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
		if got := body.HostConfig.MemorySwappiness != nil; got != row.want {
			t.Errorf("%s: the engine is asked for a swappiness: %t; want %t", row.name, got, row.want)
		}
	}
}
