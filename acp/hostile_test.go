package acp_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belayhq/belay/acp"
	"github.com/belayhq/belay/jsonrpc"
)

// A thousand turns with random Stops against an agent that answers twice, late,
// never, with another id, with an error, with nonsense: each Prompt ends once, with
// its own end or in time without one, and the next is not touched by what is left
// of it.
func TestACP_36_41_L1_L10_hostile_agent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const turns = 1000
		rng := rand.New(rand.NewPCG(1, 2))
		clientEnd, agentEnd := acp.NewPipe()
		c := acp.NewClient(clientEnd, acp.ClientOptions{Info: acp.Info{Name: "editor"}})
		agent := &hostile{tr: agentEnd, rng: rand.New(rand.NewPCG(3, 4))}
		var served sync.WaitGroup
		served.Go(agent.serve)
		if _, err := c.Initialize(t.Context()); err != nil {
			t.Fatal(err)
		}
		var ended, silent atomic.Int64
		var wg sync.WaitGroup
		for i := range turns {
			after := time.Duration(rng.IntN(3000)) * time.Millisecond
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), after)
				defer cancel()
				begin := time.Now()
				got, err := c.Prompt(ctx, fmt.Sprint("s", i), acp.Text("x"))
				var stop *acp.CancelError
				var peer *acp.Error
				switch {
				case err == nil && got.Reason == acp.StopReason(fmt.Sprint("s", i)): // its own end
				case errors.As(err, &stop):
					silent.Add(1)
				case errors.As(err, &peer), errors.Is(err, acp.ErrMalformed):
				default:
					t.Errorf("turn %d: %+v, %v", i, got, err)
				}
				if took := time.Since(begin); took > after+acp.DefaultCancelWait+2*time.Second {
					t.Errorf("turn %d took %v", i, took)
				}
				ended.Add(1)
			})
			if i%50 == 49 {
				time.Sleep(time.Second)
			}
		}
		wg.Wait()
		if n := ended.Load(); n != turns {
			t.Errorf("%d ends", n)
		}
		t.Logf("%d were given up, %+v", silent.Load(), c.Conn().Counts())
		if n := agent.cancels.Load(); n == 0 || n > turns {
			t.Errorf("%d session/cancel for %d turns", n, turns)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		served.Wait()
	})
}

// hostile is an agent with all the defects at once.
type hostile struct {
	tr      acp.Transport
	rng     *rand.Rand
	cancels atomic.Int64
	late    sync.WaitGroup
}

func (h *hostile) serve() {
	defer h.late.Wait()
	for {
		line, err := h.tr.Read()
		if err != nil {
			return
		}
		var e jsonrpc.Envelope
		if jsonrpc.Parse(line, &e) != nil {
			continue
		}
		switch e.Method {
		case acp.MethodInitialize:
			h.say(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":1}}`, e.ID)
		case acp.NoticeSessionCancel:
			h.cancels.Add(1)
		case acp.MethodPrompt:
			session, _ := acp.SessionOf(e.Params.Of(line))
			how, after := h.rng.IntN(8), time.Duration(h.rng.IntN(9000))*time.Millisecond
			h.late.Go(func() {
				time.Sleep(after)
				h.answer(how, e.ID, session)
			})
		}
	}
}

func (h *hostile) answer(how int, id jsonrpc.ID, session string) {
	end := `{"jsonrpc":"2.0","id":%s,"result":{"stopReason":"` + session + `"}}`
	switch how {
	case 0, 1:
		h.say(end, id)
	case 2: // twice
		h.say(end, id)
		h.say(end, id)
	case 3: // never
	case 4: // with another id
		h.say(end, `"c-999999"`)
	case 5:
		h.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"torn"}}`, id)
	case 6:
		h.say(`{"jsonrpc":"2.0","id":%s}`, id)
	case 7: // a flood before it, and noise
		for range 20 {
			h.say(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"`+session+`","update":{}}}%s`, "")
			h.say(`not a message %s`, "")
		}
		h.say(end, id)
	}
}

func (h *hostile) say(format string, id any) { _ = h.tr.Write(fmt.Appendf(nil, format, id)) }
