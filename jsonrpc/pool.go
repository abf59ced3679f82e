package jsonrpc

import "sync"

// Buffers of up to smallBuf bytes belong to one reader or writer for good. Larger
// ones are borrowed for as long as a message needs them and go back to a shared
// pool, which the garbage collector empties: a burst of large messages neither
// allocates again and again nor stays in the memory of an idle process.
const (
	tinyBuf  = 8 << 10  // what an idle reader holds
	smallBuf = 64 << 10 // the capacity of a pipe
)

// bufClasses are the sizes that are pooled. They are far apart so that a line of
// unknown length is copied seldom while its buffer grows.
// The last holds a line of the default bound with its end.
var bufClasses = [...]int{smallBuf, 512 << 10, 4 << 20, DefaultMaxLine + smallBuf}

var bufPools [len(bufClasses)]sync.Pool

// getBuf returns an empty buffer with room for n bytes.
func getBuf(n int) []byte {
	for i, size := range bufClasses {
		if n > size {
			continue
		}
		if p, ok := bufPools[i].Get().(*[]byte); ok {
			return (*p)[:0]
		}
		return make([]byte, 0, size)
	}
	return make([]byte, 0, n)
}

// putBuf gives back a buffer that nobody uses any more. Buffers that did not come
// from getBuf are left to the collector.
func putBuf(b []byte) {
	for i, size := range bufClasses {
		if cap(b) == size {
			b = b[:0]
			bufPools[i].Put(&b)
			return
		}
	}
}
