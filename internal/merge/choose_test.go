package merge

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	t.Parallel()
	var was, now []string
	for i := range 30 {
		line := fmt.Sprintf("@@ %d\n", i)
		was = append(was, line)
		switch i {
		case 0:
			now = append(now, "new\n", line)
		case 14:
		case 29:
			now = append(now, "@@ last, without an end")
		default:
			now = append(now, line)
		}
	}
	text := func(list []string) []byte { return []byte(strings.Join(list, "")) }
	hunks, _, _ := Unified(text(was), text(now))
	list := Hunks(hunks)
	if len(list) != 3 || strings.Join(list, "") != string(hunks) {
		t.Fatalf("Hunks(%q) = %q; want its three parts", hunks, list)
	}
	for _, row := range []struct {
		take []bool
		want []string
	}{
		{nil, was},
		{[]bool{true}, slices.Concat([]string{"new\n"}, was)},
		{[]bool{false, true}, slices.Concat(was[:14], was[15:])},
		{[]bool{false, false, true}, slices.Concat(was[:29], now[29:])},
		{[]bool{true, false, true}, slices.Concat(now[:1], was[:29], now[29:])},
		{[]bool{true, true, true}, now},
	} {
		if got := Choose(text(was), text(now), row.take); !bytes.Equal(got, text(row.want)) {
			t.Errorf("Choose(%v) = %q; want %q", row.take, got, row.want)
		}
	}
	if got := Hunks(nil); got != nil {
		t.Errorf("Hunks(nil) = %q; want nothing", got)
	}
}

// Whatever is chosen, the rest can be merged later, and all hunks are the new text.
func TestChooseThenRest(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(20261123, 2))
	several := 0
	for range 2000 {
		var was, now strings.Builder
		for range 60 {
			line := fmt.Sprintf("line %d\n", random.IntN(20)) // the same again and again
			was.WriteString(line)
			switch random.IntN(25) {
			case 0:
				continue
			case 1:
				line += "more\n"
			}
			now.WriteString(line)
		}
		from, to := []byte(was.String()), []byte(now.String()[:now.Len()-random.IntN(2)])
		unified, _, _ := Unified(from, to)
		take := make([]bool, len(Hunks(unified)))
		for i := range take {
			take[i] = random.IntN(2) == 0
		}
		if len(take) > 1 {
			several++
		}
		chosen := Choose(from, to, take)
		if got, ok := Merge(from, chosen, to); !ok || !bytes.Equal(got, to) {
			t.Fatalf("of %q to %q, %v is %q; merged with the rest %q, %v", from, to, take, chosen, got, ok)
		}
		if all := Choose(from, to, slices.Repeat([]bool{true}, len(take))); !bytes.Equal(all, to) {
			t.Fatalf("all hunks of %q make %q; want %q", from, all, to)
		}
	}
	if several < 200 {
		t.Errorf("%d texts had several hunks; want enough to say something", several)
	}
}
