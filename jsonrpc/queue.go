package jsonrpc

import (
	"slices"
	"sort"
)

// minRoom is the least room that a build function finds. A longer frame makes it
// allocate, which costs a copy of what it had so far.
const minRoom = 512

// chunk is memory that holds whole lines one behind the other. It never moves:
// the goroutine writes its front while senders append behind.
type chunk struct {
	data []byte
	refs int // lines that are neither written nor withdrawn
}

// queued is a line in a chunk.
type queued struct {
	seq        uint64
	c          *chunk
	start, end int // c.data[start:end], with newline
	dead       bool
}

func (f queued) cost() int { return f.end - f.start - 1 + frameCost }

// follow says what an urgent line waits for.
type follow struct {
	key   uint64 // the line in queue.lines, directly or through other urgent ones
	after uint64 // what the sender named
}

// queue is the Writer's data structure: lines in their order, and urgent ones
// beside it. It is guarded by the Writer's lock.
type queue struct {
	lines []queued // ascending seq; lines[:head] are gone
	head  int
	dead  int // withdrawn ones in lines[head:]

	ready   []queued            // urgent, to be written next, first come first served
	waiting map[uint64][]queued // urgent, by the line they must follow, which is in lines
	follows map[uint64]follow   // for each line in waiting

	frames int // live ones, urgent or not
	cost   int // sum of their cost()

	tail *chunk // where small lines are appended; nil or with room
	home chunk  // a small chunk that is kept for good
}

// room returns a chunk and an empty slice of at least n bytes at its end, not
// counting the newline.
func (q *queue) room(n int) (*chunk, []byte) {
	n++
	if c := q.tail; c == nil || cap(c.data)-len(c.data) < n {
		q.tail = q.newChunk(n)
		if c != nil && c.refs == 0 {
			q.recycle(c)
		}
	}
	c := q.tail
	return c, c.data[len(c.data) : len(c.data) : cap(c.data)-1]
}

func (q *queue) newChunk(n int) *chunk {
	if q.home.refs == 0 && q.tail != &q.home && n <= tinyBuf {
		if q.home.data == nil {
			q.home.data = make([]byte, 0, tinyBuf)
		}
		q.home.data = q.home.data[:0]
		return &q.home
	}
	return &chunk{data: getBuf(max(n, smallBuf))}
}

// place makes a line of frame, which was appended to free, c's room.
func (q *queue) place(c *chunk, free, frame []byte) (queued, error) {
	if len(frame) == 0 {
		return queued{}, ErrEmptyFrame
	}
	oneLine(frame)
	if cap(free) == 0 || &frame[0] != &free[:1][0] {
		// It did not fit and now has memory of its own.
		own := &chunk{data: append(frame, '\n'), refs: 1}
		return queued{c: own, end: len(own.data)}, nil
	}
	start := len(c.data)
	c.data = append(c.data[:start+len(frame)], '\n')
	c.refs++
	return queued{c: c, start: start, end: len(c.data)}, nil
}

// release gives up one line's hold on its chunk.
func (q *queue) release(c *chunk) {
	if c == nil {
		return
	}
	if c.refs--; c.refs > 0 {
		return
	}
	if c == q.tail {
		if c != &q.home {
			q.tail = nil
			q.recycle(c)
			return
		}
		c.data = c.data[:0]
		return
	}
	q.recycle(c)
}

func (q *queue) recycle(c *chunk) {
	if c != &q.home {
		putBuf(c.data)
		c.data = nil
	}
}

func (q *queue) add(f queued) {
	if q.head > 64 && q.head > len(q.lines)/2 {
		// A queue that is never quite empty must not grow at its end for ever.
		n := copy(q.lines, q.lines[q.head:])
		clear(q.lines[n:])
		q.lines, q.head = q.lines[:n], 0
	}
	q.lines = append(q.lines, f)
	q.count(f, 1)
}

func (q *queue) addUrgent(f queued, after uint64) {
	q.count(f, 1)
	key := after
	if other, ok := q.follows[after]; ok {
		key = other.key // behind an urgent one that waits itself
	} else if _, ok := q.find(after); !ok {
		q.ready = append(q.ready, f)
		return
	}
	if q.waiting == nil {
		q.waiting = make(map[uint64][]queued)
		q.follows = make(map[uint64]follow)
	}
	q.waiting[key] = append(q.waiting[key], f)
	q.follows[f.seq] = follow{key, after}
}

func (q *queue) count(f queued, sign int) {
	q.frames += sign
	q.cost += sign * f.cost()
}

// find returns the index in lines of a live line.
func (q *queue) find(seq uint64) (int, bool) {
	live := q.lines[q.head:]
	i := sort.Search(len(live), func(i int) bool { return live[i].seq >= seq })
	if i == len(live) || live[i].seq != seq || live[i].dead {
		return 0, false
	}
	return q.head + i, true
}

// has reports whether a line is queued.
func (q *queue) has(seq uint64) bool {
	if _, ok := q.find(seq); ok {
		return true
	}
	if _, ok := q.follows[seq]; ok {
		return true
	}
	return slices.ContainsFunc(q.ready, func(f queued) bool { return f.seq == seq })
}

// free makes the urgent lines ready that had to follow seq.
func (q *queue) free(seq uint64) {
	list, ok := q.waiting[seq]
	if !ok {
		return
	}
	delete(q.waiting, seq)
	for _, f := range list {
		delete(q.follows, f.seq)
	}
	q.ready = append(q.ready, list...)
}

// peek returns the line that is to be written next.
func (q *queue) peek() (f queued, urgent, ok bool) {
	if len(q.ready) > 0 {
		return q.ready[0], true, true
	}
	for q.head < len(q.lines) && q.lines[q.head].dead {
		q.head++
		q.dead--
	}
	if q.head == len(q.lines) {
		q.lines, q.head = shrink(q.lines), 0
		return queued{}, false, false
	}
	return q.lines[q.head], false, true
}

// shrink empties a list and lets its memory go when it is much.
func shrink(list []queued) []queued {
	if cap(list) > 1024 {
		return nil
	}
	clear(list)
	return list[:0]
}

// take removes the next lines that lie one behind the other in one chunk, at
// least one and then up to limit bytes, and appends them to batch.
func (q *queue) take(batch []queued, limit int) []queued {
	size := 0
	for {
		f, urgent, ok := q.peek()
		if !ok {
			return batch
		}
		if n := len(batch); n > 0 {
			prev := batch[n-1]
			if f.c != prev.c || f.start != prev.end || size+f.end-f.start > limit {
				return batch
			}
		}
		size += f.end - f.start
		batch = append(batch, f)
		q.count(f, -1)
		if urgent {
			q.ready[0] = queued{}
			if q.ready = q.ready[1:]; len(q.ready) == 0 {
				q.ready = nil
			}
			continue
		}
		q.lines[q.head].c = nil
		q.head++
		q.free(f.seq)
	}
}

// withdraw removes a queued line and reports whether it was there.
func (q *queue) withdraw(seq uint64) bool {
	if i, ok := q.find(seq); ok {
		f := &q.lines[i]
		f.dead = true
		q.dead++
		q.count(*f, -1)
		q.release(f.c)
		f.c = nil
		q.free(seq)
		q.compact()
		return true
	}
	if wait, ok := q.follows[seq]; ok {
		list, _ := q.remove(q.waiting[wait.key], seq)
		delete(q.follows, seq)
		q.waiting[wait.key] = q.unchain(list, seq)
		return true
	}
	list, ok := q.remove(q.ready, seq)
	q.ready = list
	return ok
}

// remove takes seq out of a list of urgent lines.
func (q *queue) remove(list []queued, seq uint64) ([]queued, bool) {
	i := slices.IndexFunc(list, func(f queued) bool { return f.seq == seq })
	if i < 0 {
		return list, false
	}
	q.count(list[i], -1)
	q.release(list[i].c)
	return slices.Delete(list, i, i+1), true
}

// unchain makes those of list ready that waited only because they were to follow
// seq, an urgent line that is gone, or follow one of those.
func (q *queue) unchain(list []queued, seq uint64) []queued {
	gone := map[uint64]bool{seq: true}
	return slices.DeleteFunc(list, func(f queued) bool {
		if !gone[q.follows[f.seq].after] {
			return false
		}
		gone[f.seq] = true
		delete(q.follows, f.seq)
		q.ready = append(q.ready, f)
		return true
	})
}

// compact drops withdrawn lines from the list once they are the greater part:
// a peer that does not read must not make it grow without end.
func (q *queue) compact() {
	if live := len(q.lines) - q.head - q.dead; q.dead < 64 || q.dead < live {
		return
	}
	kept := q.lines[:0]
	for _, f := range q.lines[q.head:] {
		if !f.dead {
			kept = append(kept, f)
		}
	}
	clear(q.lines[len(kept):])
	q.lines, q.head, q.dead = kept, 0, 0
}

// drop lets go of all memory but keeps the numbers of the lines.
func (q *queue) drop() {
	forget := func(list []queued) {
		for i := range list {
			list[i].c = nil
		}
	}
	forget(q.lines)
	forget(q.ready)
	for _, list := range q.waiting {
		forget(list)
	}
	q.tail, q.home = nil, chunk{}
}
