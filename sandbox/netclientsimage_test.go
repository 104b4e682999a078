//go:build linux

package sandbox_test

import (
	"bytes"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What the image of the clients lacks is said, and the next try fetches the rest.
func TestNetworkClientsImageSays(t *testing.T) {
	t.Parallel()
	const plan = `case "$*" in
*--print-uris*) echo "'http://mirror.test/a_1_all.deb' a_1_all.deb 10 SHA256:0"; echo "'http://mirror.test/b_1%3a2_all.deb' b_1%3a2_all.deb 10 SHA256:0"; exit ;;
*download*) `
	for _, tt := range []struct{ name, apt, says, kept string }{
		{"no lists", `case "$*" in *update*) echo "Err: mirror.test" >&2; exit 100 ;; esac; exit 0`, "make clients: apt-get update: the lists of packages cannot be fetched", ""},
		{"no package", plan + `exit 100 ;; esac; exit 0`, "make clients: these packages cannot be fetched: a=1 b=1:2 \n", ""},
		{"one package", plan + `: >a_1_all.deb; exit 100 ;; esac; exit 0`, "make clients: these packages cannot be fetched: b=1:2 \n", "a_1_all.deb"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bin, cache := t.TempDir(), t.TempDir()
			for name, text := range map[string]string{"apt-get": tt.apt, "docker": "exit 1", "dpkg-deb": "exit 1"} {
				if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/bash\n"+text+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			cmd := osexec.CommandContext(t.Context(), "testdata/clients/image.sh")
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "XDG_CACHE_HOME="+cache)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err == nil || len(out) > 0 || !strings.Contains(stderr.String(), tt.says) {
				t.Errorf("image.sh = %q, %v\n%s\nwant no image, and %q", out, err, &stderr, tt.says)
			}
			kept, err := filepath.Glob(filepath.Join(cache, "sandboxbash-test-clients", "debs", "*.deb"))
			if err != nil || tt.kept == "" && len(kept) > 0 || tt.kept != "" && (len(kept) != 1 || filepath.Base(kept[0]) != tt.kept) {
				t.Errorf("the cache holds %q, %v; want %q", kept, err, tt.kept)
			}
		})
	}
}
