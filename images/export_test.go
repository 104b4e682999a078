package images

import (
	"bytes"
	"compress/gzip"
)

// UseRunner makes r fill volumes with a runner of the given content, so that a
// test does not touch the volume that sessions on the same engine use.
func UseRunner(r *Resolver, content []byte) (volume, ref string) {
	var gz bytes.Buffer
	zw := gzip.NewWriter(&gz)
	_, _ = zw.Write(content) // a Buffer takes everything
	_ = zw.Close()
	r.runners = func(arch string) (runnerBinary, error) { return runnerBinary{arch: arch, gz: gz.Bytes()}, nil }
	b, _ := r.runners("amd64")
	return b.content().volume, runnerRepo + ":" + b.id()
}

// MakerOf is whose the snapshots are that r makes.
func MakerOf(r *Resolver) string { return r.maker() }
