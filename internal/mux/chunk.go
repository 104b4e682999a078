package mux

import (
	"sync"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// A chunk is memory for data on its way: received and not read, or to be sent.
type chunk struct {
	next       *chunk
	start, end int // what is in use of b
	b          []byte
	class      int
}

// classes are the sizes of chunks. A stream that has received little holds little: the next
// chunk of a stream is larger than the last one, so that many small frames cost at most four
// times their bytes.
var classes = [...]int{1 << 10, 4 << 10, 16 << 10, wire.NetFrame, wire.NetLargeFrame}

var pools [len(classes)]sync.Pool

// usualClass is the class of chunks for the largest frame that every peer takes, drainedClass the
// largest that is held while there is nothing to read.
const (
	drainedClass = 2
	usualClass   = 3
)

// newChunk returns a chunk for n bytes, of this class at least. n is at most wire.NetLargeFrame.
func newChunk(n, class int) *chunk {
	class = max(class, classOf(n))
	if c, ok := pools[class].Get().(*chunk); ok {
		return c
	}
	return &chunk{b: make([]byte, classes[class]), class: class}
}

// classOf returns the smallest class with room for n bytes.
func classOf(n int) int {
	class := 0
	for class < len(classes)-1 && classes[class] < n {
		class++
	}
	return class
}

// free gives the chunk back. It must not be used any more.
func (c *chunk) free() {
	c.next, c.start, c.end = nil, 0, 0
	pools[c.class].Put(c)
}
