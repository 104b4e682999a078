package doctorcmd

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
)

// A report holds what was found and the engine's own words, and names neither the home directory nor an older file.
func TestReport(t *testing.T) {
	t.Parallel()
	home, path := t.TempDir(), filepath.Join(t.TempDir(), "report.json")
	var out bytes.Buffer
	d := doctorOf(&out, false)
	d.env = core.New("", []string{"HOME=" + home, "USERPROFILE=" + home}, nil, &out, &out).Env
	d.info = &engine.Info{Name: "docker", Version: "28.5.2", Address: "unix://" + home + "/run/docker.sock"}
	d.tell(t.Context(), warn("storage", "slow", "do this"))
	f, err := newReport(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.writeReport(f); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Engine   struct{ Version, Address string }
		Findings []finding
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Engine.Version != "28.5.2" || got.Engine.Address != "unix://~/run/docker.sock" || len(got.Findings) != 1 || got.Findings[0].Todo != "do this" {
		t.Errorf("the report is %s; want the engine and the finding", text)
	}
	if bytes.Contains(text, []byte(home)) || !strings.Contains(out.String(), "The report is "+path) {
		t.Errorf("the report is %s, and doctor said %q; want ~ for %s, and the report's path", text, &out, home)
	}
	if _, err := newReport(path); err == nil || !strings.Contains(err.Error(), "it is there already") {
		t.Errorf("newReport() of a file that exists = %v; want an error", err)
	}
}
