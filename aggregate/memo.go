package aggregate

// memo is a map of bounded size that forgets first what was put into it first.
// It is not safe for concurrent use.
type memo[V any] struct {
	max   int // entries
	bytes int // of all keys; 0: no bound but max
	used  int
	m     map[string]V
	order []string // oldest first, from next on
	next  int
}

func (t *memo[V]) get(key string) (V, bool) {
	v, ok := t.m[key]
	return v, ok
}

// put remembers v, also in the place of another value. A key that is too long
// by itself is not remembered.
func (t *memo[V]) put(key string, v V) {
	if len(key) > maxName {
		return
	}
	if t.m == nil {
		t.m = make(map[string]V)
	}
	if _, ok := t.m[key]; !ok {
		t.order = append(t.order, key)
		t.used += len(key)
	}
	t.m[key] = v
	for len(t.m) > t.max || t.bytes > 0 && t.used > t.bytes {
		t.forget()
	}
}

func (t *memo[V]) forget() {
	oldest := t.order[t.next]
	t.order[t.next] = ""
	t.next++
	t.used -= len(oldest)
	delete(t.m, oldest)
	if t.next > len(t.order)/2 {
		t.order = append(t.order[:0], t.order[t.next:]...)
		t.next = 0
	}
}
