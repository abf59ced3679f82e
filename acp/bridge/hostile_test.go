package bridge

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/fakeagent"
)

// hostileEditor plays the editor of many turns against an agent that misbehaves in
// another way each time. It checks what an editor may rely on: each request has one
// answer, and nothing of a turn follows its end.
type hostileEditor struct {
	*testing.T
	in *io.PipeWriter

	mu      sync.Mutex
	answers map[string]int // by id
	last    map[string]string
	waits   map[string]chan struct{}
	session string
	ended   bool // the turn's end was read, and no next prompt was sent
	after   []string

	v2   bool
	turn string // v2: id of the prompt whose turn runs
	ends int    // v2: ends of turns
}

// over notes the end of a turn.
func (h *hostileEditor) over(id string) {
	h.mu.Lock()
	h.ended = true
	h.ends++
	h.mu.Unlock()
	h.signal(id)
}

func (h *hostileEditor) signal(id string) {
	c := h.wait(id)
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-c:
	default:
		close(c)
	}
}

func (h *hostileEditor) say(format string, args ...any) {
	_, _ = fmt.Fprintf(h.in, format+"\n", args...)
}

func (h *hostileEditor) wait(id string) chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waits[id] == nil {
		h.waits[id] = make(chan struct{})
	}
	return h.waits[id]
}

func (h *hostileEditor) read(out io.Reader) {
	lines := bufio.NewReaderSize(out, 1<<16)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Result struct {
				SessionID string
			}
			Error  json.RawMessage
			Params struct {
				Update struct{ SessionUpdate, State string }
			}
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			h.Errorf("not JSON: %q", line)
			continue
		}
		id := string(m.ID)
		switch {
		case m.Method == "" && id != "":
			h.mu.Lock()
			h.answers[id]++
			h.last[id] = line
			if m.Result.SessionID != "" {
				h.session = m.Result.SessionID
			}
			turn := h.turn
			h.mu.Unlock()
			switch {
			case !h.v2 || id != turn:
				h.over(id)
			case m.Error != nil: // the prompt was not taken: there is no turn
				h.over(id)
			}
		case m.Method == "session/update" && m.Params.Update.State == "idle":
			h.mu.Lock()
			turn := h.turn
			h.mu.Unlock()
			h.over(turn)
		case m.Method == "session/update" && ofTurn([]byte(m.Params.Update.SessionUpdate)):
			h.mu.Lock()
			if h.ended && !strings.Contains(line, "after the end") { // those came before we could know
				h.after = append(h.after, line)
			}
			h.mu.Unlock()
		}
	}
}

// hostile runs turns until n of them are over, each with a mode and a Stop at random
// moments. When an agent is gone a new bridge with a new agent goes on.
func hostile(t *testing.T, seed uint64, version, n int) {
	rnd := rand.New(rand.NewPCG(seed, uint64(version)))
	for n > 0 {
		n -= hostileConnection(t, rnd, version, n)
	}
}

func hostileConnection(t *testing.T, rnd *rand.Rand, version, n int) (turns int) {
	tree := belay.NewTree(belay.Options{})
	b, err := New(Options{Tree: tree, Settings: Settings{
		Settle: 300 * time.Millisecond, AgentDeadline: 900 * time.Millisecond, Grace: 100 * time.Millisecond,
		Linger: 20 * time.Millisecond, KillAfter: 50 * time.Millisecond, ExitGrace: 50 * time.Millisecond,
	}})
	if err != nil {
		t.Fatal(err)
	}
	fromEditor, editorIn := io.Pipe()
	editorOut, toEditor := io.Pipe()
	fromAgent, agentOut := io.Pipe()
	agentIn, toAgent := io.Pipe()
	var all sync.WaitGroup
	all.Go(func() {
		if err := fakeagent.Serve(agentIn, agentOut, fakeagent.Options{Version: version}); err != nil && !strings.Contains(err.Error(), "died") {
			t.Error(err)
		}
	})
	h := &hostileEditor{T: t, v2: version == 2, in: editorIn, answers: map[string]int{}, last: map[string]string{}, waits: map[string]chan struct{}{}}
	all.Go(func() { h.read(editorOut) })
	var result Result
	served := make(chan struct{})
	all.Go(func() {
		defer close(served)
		result, _ = b.Serve(context.Background(), Pipes{fromEditor, toEditor}, Pipes{fromAgent, toAgent})
	})
	h.say(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":%d}}`, version)
	<-h.wait(`"i"`)
	h.say(`{"jsonrpc":"2.0","id":"n","method":"session/new","params":{"cwd":"/w","mcpServers":[]}}`)
	<-h.wait(`"n"`)
	gone := false
	for turns < n && !gone {
		turns++
		id := fmt.Sprint(turns)
		mode := fakeagent.Modes[rnd.IntN(len(fakeagent.Modes))]
		turn, _ := json.Marshal(fakeagent.Turn{
			Mode: mode, Updates: rnd.IntN(3), ToolCall: []string{"", "tc_" + id}[rnd.IntN(2)],
			Permission: rnd.IntN(3) == 0, Elicit: rnd.IntN(4) == 0, Read: rnd.IntN(4) == 0, Terminal: rnd.IntN(4) == 0,
			EndAfter: []int{0, 1 + rnd.IntN(50)}[rnd.IntN(2)], Delay: rnd.IntN(400),
		})
		text, _ := json.Marshal(string(turn))
		h.mu.Lock()
		h.ended, h.turn, h.ends = false, id, 0
		h.mu.Unlock()
		h.say(`{"jsonrpc":"2.0","id":%s,"method":"session/prompt","params":{"sessionId":%q,"prompt":[{"type":"text","text":%s}]}}`, id, h.session, text)
		press := func() {
			if rnd.IntN(5) == 0 { // somebody else, at the turn or at the session
				kind := []belay.Kind{belay.KindTurn, belay.KindSession}[rnd.IntN(2)]
				_, err := tree.Cancel(context.Background(), belay.CancelRequest{
					Filter: belay.Filter{Kinds: []belay.Kind{kind}}, Escalate: rnd.IntN(2) == 0,
					Cancellation: belay.Cancellation{Cause: belay.CauseOperator},
				})
				if err != nil {
					t.Error(err)
				}
				return
			}
			if version == 1 && rnd.IntN(4) == 0 { // in version 2 it is ignored once the prompt is taken
				h.say(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":%s}}`, id)
				return
			}
			h.say(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":%q}}`, h.session)
		}
		time.Sleep(time.Duration(rnd.IntN(60)) * time.Millisecond)
		press()
		if rnd.IntN(3) == 0 {
			press()
		}
		select {
		case <-h.wait(id):
		case <-time.After(time.Minute):
			t.Fatalf("turn %s (%s) has no end", id, turn)
		case <-served:
			gone = true
		}
		select {
		case <-served:
			gone = true
		case <-time.After(time.Duration(rnd.IntN(20)) * time.Millisecond):
		}
		h.mu.Lock()
		if ends := h.ends; ends != 1 && !gone {
			t.Errorf("turn %s (%s) has %d ends", id, turn, ends)
		}
		h.mu.Unlock()
	}
	_ = editorIn.Close()
	<-served
	for _, p := range []io.Closer{editorOut, agentIn, agentOut, fromAgent, toAgent} {
		_ = p.Close()
	}
	all.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range turns {
		id := fmt.Sprint(i + 1)
		if gone && i == turns-1 && h.answers[id] == 0 {
			continue // it may have been sent when nobody read any more
		}
		if h.answers[id] != 1 {
			t.Errorf("prompt %s has %d answers (%s)", id, h.answers[id], result.Reason)
		}
	}
	for _, line := range h.after {
		t.Errorf("after the end of a turn: %s", line)
	}
	ctx, end := context.WithTimeoutCause(context.Background(), time.Minute, errors.New("runs are left"))
	defer end()
	if left := tree.InFlight(); left > 0 {
		list, _ := tree.List(ctx, belay.Filter{})
		for _, i := range list {
			t.Errorf("left in flight after %s: %+v", result.Reason, i)
		}
	}
	if err := tree.Close(ctx); err != nil {
		t.Error(err)
	}
	return turns
}

// 1,000 turns with random cancels, in either version, against an agent with every
// defect; each prompt is settled exactly once, and nothing is left.
func TestACP_B22_AThousandHostileTurns(t *testing.T) {
	n := 1000
	for i := range 4 {
		for version := 1; version <= 2; version++ {
			t.Run(fmt.Sprintf("seed %d version %d", i, version), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { hostile(t, uint64(i), version, n/4) })
			})
		}
	}
}
