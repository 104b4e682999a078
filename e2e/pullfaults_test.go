package e2e

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/sandboxbash/sandboxbash/e2e/faultproxy"
)

// Row L16, scenario 71: the error for an image that cannot be pulled says so, and
// what to do instead, whatever its registry says; and nothing is left of the
// session.
func TestPullFaults(t *testing.T) {
	t.Parallel()
	here := hereSeat(t)
	missing := "127.0.0.1:9/sbx-test-" + uuid.NewString() + ":1" // discard: no program listens there
	pull := regexp.MustCompile(`^/images/create\?`)
	for _, tt := range []struct {
		name  string
		fault faultproxy.Fault
		image string
		cause string
		exit  int
	}{
		{"no registry", faultproxy.Fault{}, missing, "unknown-image", 2},
		{"denied", faultproxy.Status(401), missing, "unknown-image", 2},
		{"unknown", faultproxy.Status(404), missing, "unknown-image", 2},
		{"too many requests", faultproxy.Status(429), missing, "unknown-image", 2},
		{"broken", faultproxy.Status(500), missing, "unknown-image", 2},
		{"garbage", faultproxy.Garbage(), missing, "unknown-image", 2},
		{"hung up", faultproxy.Reset(), missing, "unknown-image", 2},
		{"pulled, and not there", faultproxy.Status(204), missing, "unknown-image", 2},
		{"no name", faultproxy.Fault{}, "UPPER/case", "unknown-image", 2},
		{"of no digest", faultproxy.Fault{}, missing + "@sha256:1234", "unknown-image", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			proxy, err := faultproxy.Start(here.host)
			if err != nil {
				t.Fatal(err)
			}
			defer proxy.Close()
			proxy.Set(faultproxy.Rule{Method: "POST", Path: pull, Fault: tt.fault})
			began := time.Now()
			out, err := here.at(proxy.Host()).try(t.Context(), "run", "--image", tt.image, "--json", "true")
			if got := status(errors.Unwrap(err)); got != tt.exit || !strings.Contains(out, fmt.Sprintf(`"cause":%q`, tt.cause)) {
				t.Errorf("run = %s, %v; want exit status %d, cause %s", out, err, tt.exit, tt.cause)
			}
			if took := time.Since(began); took > 40*time.Second {
				t.Errorf("it took %s", took)
			}
			var names []string
			for _, c := range proxy.Calls() {
				if c.Name != "" && !kept(c.Name) {
					names = append(names, c.Name)
				}
			}
			if left := (&faultTable{}).remain(names, settle); len(left) > 0 {
				t.Errorf("it has left %v", left)
			}
		})
	}
}

// A registry that does not answer delays only those who asked for its image.
func TestDefaultImageHangs(t *testing.T) {
	t.Parallel()
	here := hereSeat(t)
	proxy, err := faultproxy.Start(here.host)
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	proxy.Set(
		faultproxy.Rule{Method: "GET", Path: regexp.MustCompile(`^/images/debian:stable-slim/json`), Fault: faultproxy.Status(404)},
		faultproxy.Rule{Method: "POST", Path: regexp.MustCompile(`^/images/create\?`), Fault: faultproxy.Hang()},
	)
	cmd := here.at(proxy.Host()).command(t.Context(), "run", "--quiet=false", "echo works")
	cmd.Env = append(cmd.Env, "SANDBOXBASH_IMAGE=")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil || string(out) != "works\n" || !strings.Contains(said.String(), "a snapshot of this machine's programs") || proxy.Faults() < 2 {
		t.Errorf("run = %q, %v, %s; want it to run on the snapshot, and that said", out, err, &said)
	}
}
