package jsonrpc

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

func parsed(t testing.TB, text string) ID {
	t.Helper()
	id, err := ParseID([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// MCP-G7: typed twins live side by side, spellings of one string do not.
func TestTableKeepsTwinsApart(t *testing.T) {
	var tab Table[string]
	twins := []string{`1`, `"1"`, `1.0`, `0`, `"0"`, `null`, `"null"`, `1152921504606846976`, `1152921504606846977`}
	for _, text := range twins {
		if err := tab.Add(parsed(t, text), text); err != nil {
			t.Fatal(err)
		}
	}
	if err := tab.Add(parsed(t, `"\u0031"`), ""); !errors.Is(err, ErrDuplicateID) {
		t.Errorf("second spelling: %v", err)
	}
	if err := tab.Add(ID{}, ""); !errors.Is(err, ErrID) {
		t.Errorf("no id: %v", err)
	}
	tab.Range(func(id ID, v string) bool {
		if id.Raw() != v {
			t.Errorf("%v holds %s", id, v)
		}
		return true
	})
	if v, ok := tab.TakeIf(parsed(t, `0`), func(string) bool { return false }); ok || v != "" {
		t.Error("TakeIf took what was refused")
	}
	for i, text := range twins {
		if v, ok := tab.Get(parsed(t, text)); !ok || v != text {
			t.Errorf("%s: %s %v", text, v, ok)
		}
		if v, ok := tab.Take(parsed(t, text)); !ok || v != text || tab.Len() != len(twins)-1-i {
			t.Errorf("%s: %s %v", text, v, ok)
		}
		if _, ok := tab.Take(parsed(t, text)); ok {
			t.Errorf("%s taken twice", text)
		}
	}
}

func TestTableIsBounded(t *testing.T) {
	tab := Table[int]{Max: 2000}
	var m Minter
	for range 2000 {
		if err := tab.Add(m.Next(), 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := tab.Add(m.Next(), 1); !errors.Is(err, ErrTooMany) {
		t.Error(err)
	}
	if n := len(tab.TakeAll()); n != 2000 || tab.Len() != 0 {
		t.Error(n)
	}
	id := m.Next()
	if err := tab.Add(id, 1); err != nil {
		t.Error(err)
	}
	n := 0
	tab.Range(func(ID, int) bool { n++; tab.Take(id); return false })
	if n != 1 || tab.Len() != 0 {
		t.Error(n, tab.Len())
	}
}

// Of many who settle a call at once, one does.
func TestTableTakeIsExclusive(t *testing.T) {
	var tab Table[int]
	var m Minter
	var taken atomic.Int64
	const calls = 2000
	ids := make(chan ID, calls)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for id := range ids {
				var racers sync.WaitGroup
				for range 3 {
					racers.Go(func() {
						if _, ok := tab.Take(id); ok {
							taken.Add(1)
						}
					})
				}
				tab.Len()
				racers.Wait()
			}
		})
	}
	for i := range calls {
		id := m.Next()
		if err := tab.Add(id, i); err != nil {
			t.Fatal(err)
		}
		ids <- id
	}
	close(ids)
	wg.Wait()
	if taken.Load() != calls || tab.Len() != 0 {
		t.Errorf("%d taken of %d, %d left", taken.Load(), calls, tab.Len())
	}
}
