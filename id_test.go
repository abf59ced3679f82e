package belay

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// ORC-67: ids sort by the time they were minted at, as bytes and as texts.
func TestIDsSortByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ids []RunID
		for range 100 {
			ids = append(ids, NewRunID())
			time.Sleep(time.Millisecond)
		}
		if !slices.IsSortedFunc(ids, func(a, b RunID) int { return bytes.Compare(a[:], b[:]) }) {
			t.Error("ids are not in the order of time")
		}
		if !slices.IsSortedFunc(ids, func(a, b RunID) int { return strings.Compare(a.String(), b.String()) }) {
			t.Error("texts are not in the order of time")
		}
		now := time.Now()
		if got := NewRunID().Time(); !got.Equal(now.Truncate(time.Millisecond)) {
			t.Errorf("minted at %s, says %s", now, got)
		}
	})
}

// ORC-67, ORC-68: no two that are minted are the same.
func TestIDsAreUnique(t *testing.T) {
	const n, each = 8, 5000
	var mu sync.Mutex
	seen := make(map[RunID]bool, n*each)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for range each {
				id := NewRunID()
				mu.Lock()
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(seen) != n*each {
		t.Errorf("%d different ids of %d", len(seen), n*each)
	}
}

func TestIDsRoundTrip(t *testing.T) {
	run, stop := NewRunID(), NewStopID()
	var ids struct {
		Run, None RunID
		Stop      StopID
	}
	ids.Run, ids.Stop = run, stop
	text := asJSON(t, ids)
	if err := json.Unmarshal([]byte(text), &ids); err != nil || ids.Run != run || ids.Stop != stop || !ids.None.IsZero() {
		t.Errorf("%s: %+v, %v", text, ids, err)
	}
	if s := run.String(); len(s) != 30 || !strings.HasPrefix(s, "run_") || s != strings.ToLower(s) {
		t.Errorf("text %q", s)
	}
	if (RunID{}).String() != "" || !(StopID{}).IsZero() || run.IsZero() {
		t.Error("zero ids are not nothing")
	}
	highest := RunID(slices.Repeat([]byte{0xff}, 16))
	if back, err := ParseRunID(highest.String()); err != nil || back != highest {
		t.Errorf("%s: %v, %v", highest, back, err)
	}
}

// Texts that are not exactly what String writes are refused, without being
// repeated at length.
func TestHostileIDsAreRefused(t *testing.T) {
	good := NewRunID().String()
	for _, s := range []string{
		"", "run_", good[:29], good + "0", strings.ToUpper(good), " " + good, good + "\n", "stop_" + good[4:], good[4:],
		"run_8" + good[5:], "run_z" + good[5:], good[:29] + "u", good[:29] + "\x00", good[:28] + "é",
		"run_00000000000000000000000000", "run_" + strings.Repeat("é", 13), strings.Repeat("run_", 1<<18), "../" + good,
	} {
		id, err := ParseRunID(s)
		if !errors.Is(err, ErrBadID) || !id.IsZero() || len(err.Error()) > 400 {
			t.Errorf("%.40q: %v, %v", s, id, err)
		}
	}
	stop := NewStopID()
	before := stop
	if err := stop.UnmarshalText([]byte(good)); !errors.Is(err, ErrBadID) || stop != before {
		t.Errorf("a run's id as a Stop's: %v, %v", stop, err)
	}
	if err := stop.UnmarshalText(nil); err != nil || !stop.IsZero() {
		t.Errorf("no text is no id: %v, %v", stop, err)
	}
}

func FuzzParseRunID(f *testing.F) {
	for _, s := range []string{"", "run_", NewRunID().String(), "run_7zzzzzzzzzzzzzzzzzzzzzzzzz", "run_00000000000000000000000001", "stop_00000000000000000000000001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseRunID(s)
		switch {
		case err != nil && (!errors.Is(err, ErrBadID) || !id.IsZero()):
			t.Errorf("%q: %v, %v", s, id, err)
		case err == nil && id.String() != s:
			t.Errorf("%q was read as %s", s, id)
		}
	})
}
