package bridge

import (
	"bufio"
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// piped is a bridge between two ends of operating-system pipes, as in use.
type piped struct {
	editorIn, agentIn   io.WriteCloser
	editorOut, agentOut *bufio.Reader
	tree                *belay.Tree
	served              chan struct{}
}

func newPiped(b testing.TB) *piped {
	pipe := func() (*os.File, *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			b.Fatal(err)
		}
		return r, w
	}
	fromEditor, editorIn := pipe()
	editorOut, toEditor := pipe()
	fromAgent, agentIn := pipe()
	agentOut, toAgent := pipe()
	p := &piped{
		editorIn: editorIn, agentIn: agentIn, tree: belay.NewTree(belay.Options{}), served: make(chan struct{}),
		editorOut: bufio.NewReaderSize(editorOut, 1<<16), agentOut: bufio.NewReaderSize(agentOut, 1<<16),
	}
	bridge, err := New(Options{Tree: p.tree, Settings: Settings{ExitGrace: time.Millisecond}})
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		defer close(p.served)
		_, _ = bridge.Serve(context.Background(), Pipes{fromEditor, toEditor}, Pipes{fromAgent, toAgent})
	}()
	b.Cleanup(func() {
		_ = editorIn.Close()
		<-p.served
		_ = agentIn.Close()
		_ = editorOut.Close()
		_ = agentOut.Close()
		_ = p.tree.Close(context.Background())
	})
	p.pass(b, p.editorIn, p.agentOut, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}`)
	p.pass(b, p.agentIn, p.editorOut, `{"jsonrpc":"2.0","id":"b-1","result":{"protocolVersion":1}}`)
	p.pass(b, p.editorIn, p.agentOut, `{"jsonrpc":"2.0","id":1,"method":"session/new","params":{}}`)
	p.pass(b, p.agentIn, p.editorOut, `{"jsonrpc":"2.0","id":"b-2","result":{"sessionId":"s_7"}}`)
	return p
}

// pass writes a line at one end and reads the next at the other.
func (p *piped) pass(b testing.TB, in io.Writer, out *bufio.Reader, line string) string {
	if _, err := io.WriteString(in, line+"\n"); err != nil {
		b.Fatal(err)
	}
	got, err := out.ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return got
}

func (p *piped) prompt(b testing.TB) {
	p.pass(b, p.editorIn, p.agentOut, `{"jsonrpc":"2.0","id":9,"method":"session/prompt","params":{"sessionId":"s_7"}}`)
}

// A message chunk from the agent to the editor; the bar is 100 µs more than
// without the bridge, at the median.
func BenchmarkUpdate(b *testing.B) {
	update := `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s_7","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"` + strings.Repeat("x", 60) + `"}}}}`
	measure := func(b *testing.B, in io.Writer, out *bufio.Reader, p *piped) {
		b.ReportAllocs()
		var took []time.Duration
		for b.Loop() {
			start := time.Now()
			p.pass(b, in, out, update)
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "median-ns")
		b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
	}
	b.Run("bridge", func(b *testing.B) {
		p := newPiped(b)
		p.prompt(b)
		measure(b, p.agentIn, p.editorOut, p)
	})
	b.Run("pipe", func(b *testing.B) {
		r, w, err := os.Pipe()
		if err != nil {
			b.Fatal(err)
		}
		defer r.Close()
		defer w.Close()
		measure(b, w, bufio.NewReader(r), &piped{})
	})
}

// From a Stop that is written to the editor's pipe until the agent has read it; the
// bar is 1 ms at p99.
func BenchmarkStop(b *testing.B) {
	p := newPiped(b)
	var took []time.Duration
	for b.Loop() {
		time.Sleep(5 * time.Millisecond) // people do not press Stop a thousand times in a second
		line := p.pass(b, p.editorIn, p.agentOut, `{"jsonrpc":"2.0","id":9,"method":"session/prompt","params":{"sessionId":"s_7"}}`)
		start := time.Now()
		p.pass(b, p.editorIn, p.agentOut, sessionStop)
		took = append(took, time.Since(start))
		id := line[strings.Index(line, `"b-`):]
		id = id[:strings.IndexByte(id[1:], '"')+2]
		p.pass(b, p.agentIn, p.editorOut, `{"jsonrpc":"2.0","id":`+id+`,"result":{"stopReason":"cancelled"}}`)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "median-ns")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
}
