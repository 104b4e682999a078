//go:build unix

package imagecmd_test

import (
	"slices"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/cli/clitest"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
)

// What was made of an image that is gone is removed, and named.
func TestPrune(t *testing.T) {
	t.Parallel()
	const programs = "sandboxbash-programs-0123456789ab"
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"image", "prune"}, programs + "\n"},
		{[]string{"image", "prune", "--quiet"}, ""},
	} {
		environ, asked := fakeEngine(t, map[string]string{
			"GET /version":                `{"Components":[{"Name":"Engine"}]}`,
			"GET /volumes":                `{"Volumes":[{"Name":"` + programs + `","Labels":{"sandboxbash.role":"programs"}}]}`,
			"DELETE /volumes/" + programs: "",
		})
		status, out, errs := clitest.Call(t, environ, tt.args...)
		if status != 0 || out != tt.want || errs != "" || !slices.Contains(asked(), "DELETE /volumes/"+programs) {
			t.Errorf("%q = %d, %q, %q; want %q; asked %q", tt.args, status, out, errs, tt.want, asked())
		}
	}
	if status, _, errs := clitest.Call(t, clitest.NoEngine(t), "image", "prune", "x"); status != exit.Usage {
		t.Errorf("image prune x = %d, %q; want wrong use", status, errs)
	}
}
