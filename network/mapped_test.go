package network

import (
	"strings"
	"testing"
)

// What is not given to IDNA would come back from it as it is.
func TestMapsToItself(t *testing.T) {
	t.Parallel()
	const letters, most = "ax-n_0.", 5
	hosts := []string{strings.Repeat("a", 64) + ".com", strings.Repeat("a.", 200), "--a--", "ab--c.de", "0x7f.1"}
	for length, shorter := 1, []string{""}; length <= most; length++ {
		var longer []string
		for _, s := range shorter {
			for _, c := range letters {
				longer = append(longer, s+string(c))
			}
		}
		hosts, shorter = append(hosts, longer...), longer
	}
	skipped := 0
	for _, host := range hosts {
		if !mapsToItself(host) {
			skipped++
			continue
		}
		if got, err := lookup.ToASCII(host); got != host || err != nil {
			t.Errorf("IDNA makes %q, %v of %q", got, err, host)
		}
	}
	if skipped == 0 || skipped > len(hosts)/10 {
		t.Errorf("%d of %d hosts are left to IDNA; want those with its own labels alone", skipped, len(hosts))
	}
	for _, host := range []string{"Example.com", "bücher.example", "xn--bcher-kva.example", "a.xn--b", "exa mple", "example。com", "\xff"} {
		if mapsToItself(host) {
			t.Errorf("%q is not left to IDNA", host)
		}
	}
}

// A Policy asks for the canonical host several times for each connection.
func BenchmarkCanonical(b *testing.B) {
	for b.Loop() {
		if _, err := Canonical("registry.npmjs.example"); err != nil {
			b.Fatal(err)
		}
	}
}
