package wire

import (
	"strconv"
	"strings"
	"testing"
)

func TestQuoted(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "sleep 1", strings.Repeat("a", 5000), strings.Repeat("\x01", 5000), strings.Repeat("\U0010ffff", 2000), strings.Repeat("é", 700), strings.Repeat("\n\xff", 999)} {
		for _, most := range []int{16, 40, 1024} {
			q := quoted(text, most)
			got, err := strconv.Unquote(q)
			if err != nil || len(q) > most || !strings.HasPrefix(text, strings.TrimRight(strings.TrimSuffix(got, "…"), "\uFFFD")) {
				t.Errorf("quoted(%.20q, %d) = %d bytes %.60q, %v; want at most that, and its beginning", text, most, len(q), q, err)
			}
		}
	}
}
