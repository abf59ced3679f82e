package jsonrpc

import "fmt"

// DefaultMaxBatch is the usual limit for [SplitBatch].
const DefaultMaxBatch = 1000

// IsBatch reports whether a line looks like a batch: its first byte that is not
// white space opens an array. Batches exist in the 2025-03-26 revision (MCP-40).
func IsBatch(line []byte) bool {
	i := skipSpace(line, 0)
	return i < len(line) && line[i] == '['
}

// SplitBatch validates a batch and returns its elements, which alias frame. limit
// bounds their number; 0 means [DefaultMaxBatch]. Errors match [ErrSyntax],
// [ErrDepth], [ErrEmptyBatch], [ErrBatchTooLong], or [ErrInvalid] when it is no
// array at all.
//
// Elements are not judged here: each is to be given to [Parse], which refuses
// what is no message (a nested batch is not), so that each bad element gets its
// own error answer, as JSON-RPC wants it.
func SplitBatch(frame []byte, limit int) ([][]byte, error) {
	if limit <= 0 {
		limit = DefaultMaxBatch
	}
	i := skipSpace(frame, 0)
	if i == len(frame) || frame[i] != '[' {
		if f := checkWhole(frame, MaxDepth+1); !f.ok() {
			return nil, f.err()
		}
		return nil, fmt.Errorf("%w: not a batch", ErrInvalid)
	}
	var elems [][]byte
	i = skipSpace(frame, i+1)
	for more := i >= len(frame) || frame[i] != ']'; more; {
		end, f := checkValue(frame, i, MaxDepth)
		if !f.ok() {
			return nil, f.err()
		}
		if len(elems) == limit {
			return nil, fmt.Errorf("%w: at most %d are allowed", ErrBatchTooLong, limit)
		}
		elems = append(elems, frame[i:end:end])
		switch i = skipSpace(frame, end); {
		case i >= len(frame):
			return nil, fault{at: i, why: whyEnd}.err()
		case frame[i] == ',':
			i = skipSpace(frame, i+1)
		case frame[i] == ']':
			more = false
		default:
			return nil, fault{at: i, why: whyNext}.err()
		}
	}
	if f := checkEnd(frame, i+1); !f.ok() {
		return nil, f.err()
	}
	if len(elems) == 0 {
		return nil, ErrEmptyBatch
	}
	return elems, nil
}

// AppendBatch appends an array of the frames to dst. Without frames it appends
// nothing, because there is no empty batch: whoever has nothing to answer sends
// nothing.
func AppendBatch(dst []byte, frames ...[]byte) []byte {
	if len(frames) == 0 {
		return dst
	}
	sep := byte('[')
	for _, f := range frames {
		dst = append(dst, sep)
		dst = append(dst, f...)
		sep = ','
	}
	return append(dst, ']')
}
