package script

// Bounds of what a call may remember (AT-88).
const (
	maxStateKeys  = 64
	maxStateBytes = 256 << 10
)

// state is what a script keeps during one call (AT-55): JSON by key. The zero value
// is ready; it belongs to the call's goroutine.
type state struct {
	values map[string]string
	bytes  int
}

func (s *state) get(key string) (string, bool) {
	v, ok := s.values[key]
	return v, ok
}

// set reports whether there was room.
func (s *state) set(key, value string) bool {
	size := s.bytes + len(key) + len(value)
	old, ok := s.values[key]
	if ok {
		size -= len(key) + len(old)
	}
	if size > maxStateBytes || !ok && len(s.values) == maxStateKeys {
		return false
	}
	if s.values == nil {
		s.values = make(map[string]string)
	}
	s.values[key], s.bytes = value, size
	return true
}

func (s *state) remove(key string) {
	if old, ok := s.values[key]; ok {
		s.bytes -= len(key) + len(old)
		delete(s.values, key)
	}
}

func (s *state) clear() { *s = state{} }
