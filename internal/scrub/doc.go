// Package scrub finds secrets in a stream and masks them, in all the forms that ordinary
// programs print them in. A Scrubber works on any cut of the stream into writes, in
// bounded memory, and holds back only what may be the start of a secret.
//
//	Secrets ─ needles.go: the forms of a secret ─ index.go: the search
//	stream ─ Scrubber ─ masked stream          wrap.go: forms over several lines
package scrub
