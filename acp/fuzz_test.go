package acp_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/belayhq/belay/acp"
	"github.com/belayhq/belay/jsonrpc"
)

// FuzzConn has a hostile client say anything: the connection neither panics nor
// hangs, every request that can be read gets at most one answer more than it was
// sent, and what is written is always a message.
func FuzzConn(f *testing.F) {
	f.Add([]byte(helloClientSeed + "\n" + `{"jsonrpc":"2.0","id":1,"method":"_wait"}` + "\n" + `{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}`))
	f.Add([]byte(helloClient + "\n" + `{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"x"}}` + "\n" + `{"jsonrpc":"2.0","id":"x","method":"_x"}`))
	f.Add([]byte(helloClient + "\n" + `{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}` + "\n" + `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":null,"method":"_x"}` + "\n" + `{"jsonrpc":"2.0","id":"a-1","result":{}}` + "\n" + `[]` + "\n" + `{`))
	f.Fuzz(func(t *testing.T, input []byte) {
		client, agent := acp.NewPipe()
		o := testAgent(func(ctx context.Context, _ *acp.Turn) (acp.StopReason, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
		o.Handler, o.Versions, o.AnswerAfter = echo, []int{1, 2}, 50*time.Millisecond
		a := acp.NewAgent(agent, o)
		asked, read := map[string]int{}, make(chan map[string]int)
		go func() {
			got := map[string]int{}
			for {
				line, err := client.Read()
				if err != nil {
					read <- got
					return
				}
				var e jsonrpc.Envelope
				if err := jsonrpc.Parse(line, &e); err != nil {
					t.Errorf("wrote %s: %v", line, err)
				}
				if e.Kind == jsonrpc.Response {
					got[e.ID.Key()]++
				}
			}
		}()
		unread := 0
		for n, line := range bytes.Split(input, []byte("\n")) {
			if len(bytes.TrimSpace(line)) == 0 || n > 100 {
				continue
			}
			var e jsonrpc.Envelope
			switch err := jsonrpc.Parse(line, &e); {
			case err == nil && e.Kind == jsonrpc.Request:
				asked[e.ID.Key()]++
			case err != nil:
				unread++
			}
			if client.Write(line) != nil {
				break
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		time.Sleep(time.Millisecond)
		if err := a.Close(ctx); err != nil {
			t.Error(err)
		}
		_ = client.Close()
		extra := 0
		for id, n := range <-read {
			extra += max(0, n-asked[id])
		}
		if extra > unread {
			t.Errorf("%d answers too many; %d messages could not be read", extra, unread)
		}
	})
}
