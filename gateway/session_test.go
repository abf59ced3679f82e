package gateway

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
)

// stopsWithin is how soon after its cancel a tool that listens must have
// stopped.
const stopsWithin = 50 * time.Millisecond

// TestListeningToolStops: W stops within 50 ms of the client's cancel, and in
// no dialect of the server's answer does the caller get another message (MCP-8,
// MCP-10, MCP-14, MCP-G24).
func TestListeningToolStops(t *testing.T) {
	for _, version := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			r := open(t, linkOptions{})
			r.initialize(version)
			try := -1
			calm.Within(t, stopsWithin, func() (from, to time.Time) {
				try++
				key, id := fmt.Sprint("w", try), fmt.Sprint(100+try)
				if err := r.Call(id, "tick", fmt.Sprintf(`{"key":%q,"n":2000}`, key), id); err != nil {
					t.Fatal(err)
				}
				r.saw(key, "tick")
				at := time.Now()
				r.cancel(id, "closed the panel")
				to = r.saw(key, "stopped").Time
				r.works()
				r.silent(id, at)
				r.muted(key, id)
				return at, to
			})
			if e := r.saw("w0", "signal"); e.Detail != "closed the panel" {
				t.Errorf("the reason came as %q (MCP-4, MCP-G21)", e.Detail)
			}
		})
	}
}

// TestReplyDialects: whatever a server answers to a cancelled call, its caller
// hears nothing of it and the session goes on (MCP-G24, MCP-G27).
func TestReplyDialects(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{"none", "result", "iserror", "error0", "-32800"} {
		for _, late := range []string{"0s", "80ms"} {
			t.Run(reply+" after "+late, func(t *testing.T) {
				r := legacy(t, linkOptions{
					server: []string{"-reply", reply, "-late", late},
					cfg:    func(c *Config) { c.Enforce = EnforceNever }, // the verdict is final after the grace
				})
				r.tick("7", "w", `"n":2000`)
				run := r.runOf("7")
				at := time.Now()
				r.cancel("7", "enough")
				r.saw("w", "stopped")
				if reply != "none" {
					r.until("the late answer is on the receipt", func() bool {
						receipt := run.Receipt()
						return receipt != nil && receipt.Late > 0
					})
				}
				r.works()
				r.silent("7", at)
				receipt := r.receipt(run)
				want := belay.Acknowledged
				if reply == "none" {
					want = belay.Signalled
				}
				if receipt.Verdict != want || receipt.Outcome != belay.Cancelled || receipt.Cancellation.Cause != belay.CauseUser {
					t.Errorf("the receipt says %s, %s, cause %s", receipt.Verdict, receipt.Outcome, receipt.Cancellation.Cause)
				}
			})
		}
	}
}

// TestEarlyReplyOfDeafTool: a server that answers at once while its tool works
// on is muted all the same, and what still comes is a sign of life (MCP-G27).
func TestEarlyReplyOfDeafTool(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{server: []string{"-early", "-reply", "error0"}, cfg: func(c *Config) { c.Enforce = EnforceNever }})
	if err := r.Call("7", "tick", `{"key":"w","n":40,"deaf":true}`, `"tok"`); err != nil {
		t.Fatal(err)
	}
	r.saw("w", "tick")
	at := time.Now()
	r.cancel("7", "")
	r.saw("w", "done")
	r.works()
	r.silent("7", at)
	r.muted("w", `"tok"`)
}

// TestStoppingOneSparesTheOther: two calls in one session, one is stopped by its
// caller; the other ends as if nothing had been (MCP-G36).
func TestStoppingOneSparesTheOther(t *testing.T) {
	t.Parallel()
	for _, isolation := range []Isolation{IsolationShared, IsolationCall} {
		for _, deaf := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s deaf=%v", isolation, deaf), func(t *testing.T) {
				r := legacy(t, linkOptions{server: []string{"-no-subscribe"}, cfg: func(c *Config) {
					c.Isolation, c.Enforce = isolation, EnforceStrict
				}})
				r.tick("1", "other", `"n":40,"ms":10`)
				r.tick("2", "w", fmt.Sprintf(`"n":3000,"deaf":%v`, deaf))
				r.cancel("2", "")
				if !deaf {
					r.saw("w", "stopped")
				}
				if m := r.expect("1"); m.Text() != "other: 40 ticks" {
					t.Fatalf("the other call was answered %s", m.Raw)
				}
				if n := r.wit.Count("other", "signal"); n != 0 {
					t.Fatal("the other call was told to stop")
				}
				if n := r.wit.Count("other", "tick"); n != 40 {
					t.Fatalf("the other call ticked %d times, want 40", n)
				}
				r.receipt(r.runOf("2"))
				if r.wit.StillTicking("w", 100*time.Millisecond) {
					t.Fatal("the stopped call still ticks")
				}
				r.works()
			})
		}
	}
}

// TestOperatorStop: exactly one answer within 250 ms, -32800 with its data, and
// nothing more on that id (MCP-G25, MCP-G26).
func TestOperatorStop(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{server: []string{"-reply", "iserror", "-late", "300ms"}})
	if err := r.Call("7", "tick", `{"key":"w","n":2000}`, "7"); err != nil {
		t.Fatal(err)
	}
	r.saw("w", "tick")
	w, at := calm.Start(t), time.Now()
	run := r.stop("7", "cost limit")
	m := r.expect("7")
	w.Within(t, m.Time.Sub(at), 250*time.Millisecond+schedule, "the answer")
	if m.Error == nil || m.Error.Code != belay.CodeCancelled || m.Error.Message != "Cancelled" {
		t.Fatalf("the answer is %s", m.Raw)
	}
	var data errorData
	if err := json.Unmarshal(m.Error.Data, &data); err != nil {
		t.Fatal(err)
	}
	if string(data.RequestID) != "7" || data.Run != run.ID().String() || data.Reason != "cost limit" ||
		data.Cause != "operator" || data.Partial == nil || *data.Partial {
		t.Errorf("the data are %s", m.Error.Data)
	}
	r.saw("w", "stopped")
	r.until("the late answer is on the receipt", func() bool { return run.Receipt().Late > 0 })
	r.works()
	if n := len(r.Responses("7")); n != 1 {
		t.Errorf("the caller got %d answers, want 1", n)
	}
	r.muted("w", "7")
	if e := r.saw("w", "signal"); e.Detail != "stopped by operator: cost limit" {
		t.Errorf("the server was told %q", e.Detail)
	}
}

// schedule is what a loaded machine of two cores may add to a bound.
const schedule = 250 * time.Millisecond

// TestDeadline: absolute although progress arrives, cause deadline, one answer
// (MCP-G23, MCP-30).
func TestDeadline(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{cfg: func(c *Config) { c.Deadline = 300 * time.Millisecond }})
	w, at := calm.Start(t), time.Now()
	if err := r.Call("7", "tick", `{"key":"w","n":2000}`, "7"); err != nil {
		t.Fatal(err)
	}
	m := r.expect("7")
	if took := m.Time.Sub(at); took < 300*time.Millisecond {
		t.Errorf("the answer came after %v", took)
	}
	w.Within(t, m.Time.Sub(at), 550*time.Millisecond+schedule, "the answer")
	var data errorData
	if m.Error == nil || json.Unmarshal(m.Error.Data, &data) != nil || m.Error.Code != belay.CodeCancelled || data.Cause != "deadline" {
		t.Fatalf("the answer is %s", m.Raw)
	}
	r.saw("w", "stopped")
	if r.wit.Count("w", "tick") < 5 {
		t.Error("the call was not at work")
	}
	r.works()
	if n := len(r.Responses("7")); n != 1 {
		t.Errorf("the caller got %d answers, want 1", n)
	}
}
