package acp

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/belayhq/belay/jsonrpc"
)

// The memory of ids is a window over the last ones, however often each came.
func TestACP_L10_L11_memory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m memory
		var model []string
		for i := range maxMemory - 3 { // fill it, but for a few
			key := fmt.Sprint("old", i)
			m.add(key)
			model = append(model, key)
		}
		for _, key := range rapid.SliceOfN(rapid.SampledFrom([]string{"1", `"1"`, "1.0", "a", "b", "null"}), 0, 50).Draw(t, "keys") {
			m.add(key)
			model = append(model, key)
		}
		window := map[string]bool{}
		for _, key := range model[max(0, len(model)-maxMemory):] {
			window[key] = true
		}
		for _, key := range append(model[:60:60], model[len(model)-60:]...) {
			if m.knows(key) != window[key] {
				t.Fatalf("knows(%s) is %v, want %v", key, m.knows(key), window[key])
			}
		}
		if len(m.ring) > maxMemory || len(m.has) > maxMemory {
			t.Fatalf("it holds %d, %d", len(m.ring), len(m.has))
		}
	})
}

// Own ids are told from those of others by more than their look.
func TestACP_L11_issued(t *testing.T) {
	c := &Conn{}
	c.ids.Prefix = agentPrefix
	for range 3 {
		c.minted.Add(1)
		c.ids.Next()
	}
	for text, want := range map[string]bool{
		`"a-1"`: true, `"a-3"`: true, `"\u0061-2"`: true,
		`"a-4"`: false, `"a-0"`: false, `"a-"`: false, `"a--1"`: false, `"c-1"`: false, `1`: false, `null`: false, `"a-99999999999999999999"`: false,
	} {
		id, err := jsonrpc.ParseID([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if c.issued(id) != want {
			t.Errorf("issued(%s) is %v", text, !want)
		}
	}
}
