package exit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/sandbox"
)

// What package sandbox leaves to the command line is said in its words.
func TestHints(t *testing.T) {
	t.Parallel()
	_, root := sandbox.Spec{User: &sandbox.User{}}.Normalize()
	_, user := sandbox.Spec{Profile: sandbox.Dev, User: &sandbox.User{UID: 1000, GID: 1000}}.Normalize()
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&sandbox.ForeignBindError{Dir: "/src"}, "--workspace copy:/src"},
		{root, "--profile dev"},
		{user, "--profile strict"},
	} {
		err := fmt.Errorf("session x: %w", tt.err)
		if got := Judge(err).Todo; !strings.Contains(got, tt.want) {
			t.Errorf("Judge(%v).Todo = %q; want %q in it", err, got, tt.want)
		}
		if strings.Contains(err.Error(), "--") {
			t.Errorf("%q names a flag", err)
		}
	}
}
