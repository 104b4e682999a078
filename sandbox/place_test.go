package sandbox

import (
	"errors"
	"testing"
)

func TestPlaceNames(t *testing.T) {
	t.Parallel()
	for _, test := range [][2]string{{"", "x"}, {"..", "x"}, {"a/b", "x"}, {"a", "../x"}, {"a", "/x"}, {"a", ""}} {
		_, err := (&Session{}).Place(t.Context(), test[0], test[1], Tree{})
		if bad := (*InputError)(nil); !errors.As(err, &bad) {
			t.Errorf("Place(%q, %q) = %v; want an *InputError", test[0], test[1], err)
		}
	}
}
