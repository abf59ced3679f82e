//go:build !linux

package proc

// Memory is how much memory the leader has now, in bytes, without its children. 0
// when it has ended, and where that is not known, as here.
func (t *Tree) Memory() int64 { return 0 }
