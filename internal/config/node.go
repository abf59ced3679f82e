package config

import "slices"

// kind is what stands in a file.
type kind int

const (
	kindNull kind = iota
	kindString
	kindNumber
	kindBool
	kindList
	kindMap
)

func (k kind) String() string {
	return [...]string{"nothing", "text", "a number", "true or false", "a list", "a map"}[k]
}

// node is a value of a file, of either form, and where it stands. Nodes may be
// shared (YAML aliases) but never form a ring.
type node struct {
	kind   kind
	text   string // of a scalar; as written, for numbers and booleans
	line   int    // from 1
	column int    // from 1, in characters
	width  int    // characters that a scalar takes up there
	items  []*node
	pairs  []pair
}

// pair is one entry of a map.
type pair struct{ key, value *node }

// get is the value of a key, or nil. The last of equal keys counts.
func (n *node) get(key string) *node {
	if n == nil {
		return nil
	}
	for _, p := range slices.Backward(n.pairs) {
		if p.key.text == key {
			return p.value
		}
	}
	return nil
}

// is reports whether a node is there and of a kind.
func (n *node) is(k kind) bool { return n != nil && n.kind == k }

// scalar is the text of a node that is there and one value; else empty.
func (n *node) scalar() string {
	if n == nil || n.kind > kindBool {
		return ""
	}
	return n.text
}
