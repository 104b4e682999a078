package wire

import (
	"strconv"
	"strings"
)

const jobPrefix = "bg_"

// NextJobID is the first of bg_1, bg_2, … that is not taken.
func NextJobID(taken func(id string) bool) string {
	for n := 1; ; n++ {
		if id := jobPrefix + strconv.Itoa(n); !taken(id) {
			return id
		}
	}
}

// ValidJobID reports whether id has the form of a job's: no path can be made of it.
func ValidJobID(id string) bool {
	number, ok := strings.CutPrefix(id, jobPrefix)
	n, err := strconv.Atoi(number)
	return ok && err == nil && n > 0 && strconv.Itoa(n) == number
}
