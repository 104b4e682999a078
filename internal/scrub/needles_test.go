package scrub

import (
	"strings"
	"testing"
)

// A piece is looked for by itself: it must not be shorter than what is, nor
// begin with a line end, and together the pieces are the value.
func TestPieces(t *testing.T) {
	for _, head := range []int{8, 33, 63, 64, 65, 127, 130} {
		for _, ends := range []int{0, 1, 30, 70, 1000} {
			for _, tail := range []int{1, 6, 7, 8, 17, 64, 200} {
				text := strings.Repeat("a", head) + strings.Repeat("\n", ends) + strings.Repeat("b", tail)
				got := pieces(text)
				if joined := strings.Join(got, ""); joined != text {
					t.Fatalf("pieces(%q) = %q; together they are not the text", text, got)
				}
				for _, p := range got {
					if len(p) < MinSecret || p[0] == '\n' {
						t.Errorf("pieces(%q) = %q; want none shorter than %d bytes, none with a line end in front", text, got, MinSecret)
					}
				}
			}
		}
	}
}
