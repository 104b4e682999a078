package doctorcmd

import (
	"fmt"
	"regexp"
	"strconv"
	"sync"
)

// release is a version of runc. rc is 0 for a final release.
type release struct{ major, minor, patch, rc int }

// less orders releases; a release candidate comes before its release.
func (r release) less(than release) bool {
	for _, pair := range [][2]int{{r.major, than.major}, {r.minor, than.minor}, {r.patch, than.patch}} {
		if pair[0] != pair[1] {
			return pair[0] < pair[1]
		}
	}
	if r.rc == 0 || than.rc == 0 {
		return r.rc != 0 && than.rc == 0
	}
	return r.rc < than.rc
}

// releaseForm is how engines report runc; what follows is the distribution's.
var releaseForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\Av?(\d+)\.(\d+)\.(\d+)(?:[-~]rc\.?(\d+))?(.*)\z`)
})

// parseRelease reads a version. patched reports a distribution's own, which may
// have fixes that its number does not tell of.
func parseRelease(text string) (r release, patched, ok bool) {
	m := releaseForm().FindStringSubmatch(text)
	if m == nil {
		return r, false, false
	}
	for i, to := range []*int{&r.major, &r.minor, &r.patch, &r.rc} {
		n, err := strconv.Atoi(m[i+1])
		if m[i+1] != "" && err != nil {
			return r, false, false
		}
		*to = n
	}
	return r, m[5] != "", true
}

// fixedIn lists, for each branch of runc, the first release with a fix; later
// branches have it, earlier ones have not.
func (r release) fixedIn(branches ...release) bool {
	for _, b := range branches {
		if r.major == b.major && r.minor == b.minor {
			return !r.less(b)
		}
	}
	return branches[len(branches)-1].less(r)
}

// runcFinding judges runc by the vulnerabilities that lead out of a container,
// as its change log lists them.
func runcFinding(version string) finding {
	const topic = "runc"
	r, patched, known := parseRelease(version)
	if !known {
		return warn(topic, fmt.Sprintf("the engine does not tell its version (%q)", version), "check that it is 1.1.12 or later, better 1.3.6 or later")
	}
	switch {
	case r.less(release{1, 1, 12, 0}) && patched:
		return warn(topic, version+" is older than 1.1.12 (CVE-2024-21626), unless the distribution has fixed it", "check the package's change log, or upgrade runc")
	case r.less(release{1, 1, 12, 0}):
		return fail(topic, version+" lets containers out (CVE-2024-21626)", "upgrade runc to 1.1.12 or later")
	case !r.fixedIn(release{1, 2, 8, 0}, release{1, 3, 3, 0}, release{1, 4, 0, 3}):
		return warn(topic, version+" can be tricked by hostile images (CVE-2025-31133, CVE-2025-52565, CVE-2025-52881)", "upgrade runc to 1.2.8, 1.3.3 or later")
	case !r.fixedIn(release{1, 3, 6, 0}, release{1, 4, 3, 0}, release{1, 5, 0, 3}):
		return warn(topic, version+" follows a hostile image's /dev link (CVE-2026-41579, low)", "upgrade runc to 1.3.6, 1.4.3 or later")
	default:
		return ok(topic, "%s", version)
	}
}
