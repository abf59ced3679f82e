// Command proxy stands between an editor and its agent and passes every request
// on. It shows that a Stop needs no code of its own: each handler makes its call
// with the ctx that it got, and so a cancel on one side is a cancel on the other,
// with that side's id and in the form that it takes.
//
//	proxy PATH-OF-AGENT ARGS…
//
// It reads and writes messages anew; "belay acp" passes them byte by byte, and
// stops processes too.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"

	"github.com/belayhq/belay/acp"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "proxy: which agent?")
		os.Exit(2)
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "proxy:", err)
		os.Exit(1)
	}
}

func run(argv []string) error {
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:gosec // to start what the user names is what it is for
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &proxy{ready: make(chan struct{})}
	p.agent = acp.NewClient(acp.NewStdio(out, in), acp.ClientOptions{
		Info:    acp.Info{Name: "belay-example-proxy"},
		Options: acp.Options{Handler: p.fromAgent, Notify: p.noticeFromAgent},
		Update:  p.updateFromAgent,
	})
	p.editor = acp.NewConn(acp.NewStdio(os.Stdin, os.Stdout), acp.Options{
		Role: acp.RoleAgent, Handler: p.fromEditor, Notify: p.noticeFromEditor,
	})
	close(p.ready)
	select {
	case <-p.editor.Done():
	case <-p.agent.Conn().Done():
	}
	ctx := context.Background()
	_ = p.editor.Close(ctx) // what is open is answered first
	_ = p.agent.Close(ctx)
	return cmd.Wait()
}

type proxy struct {
	editor *acp.Conn
	agent  *acp.Client
	ready  chan struct{} // closed when both are there
}

func (p *proxy) fromEditor(ctx context.Context, r *acp.Request) (any, error) {
	if r.Method() != acp.MethodPrompt {
		var result json.RawMessage
		err := p.agent.Conn().Call(ctx, r.Method(), r.Params(), &result)
		return result, err
	}
	var asked struct {
		Session string          `json:"sessionId"`
		Prompt  json.RawMessage `json:"prompt"`
	}
	if err := r.Decode(&asked); err != nil {
		return nil, err
	}
	// A prompt is stopped by session/cancel, which every agent knows.
	end, err := p.agent.Prompt(ctx, asked.Session, asked.Prompt)
	return end.Raw, err
}

func (p *proxy) noticeFromEditor(_ context.Context, method string, params []byte) {
	if method != acp.NoticeSessionCancel { // the prompt's ctx has carried it over
		_ = p.agent.Conn().Notify(method, json.RawMessage(params))
	}
}

func (p *proxy) fromAgent(ctx context.Context, r *acp.Request) (any, error) {
	<-p.ready
	var result json.RawMessage
	err := p.editor.Call(ctx, r.Method(), r.Params(), &result)
	return result, err
}

func (p *proxy) noticeFromAgent(_ context.Context, method string, params []byte) {
	<-p.ready
	_ = p.editor.Notify(method, json.RawMessage(params))
}

func (p *proxy) updateFromAgent(ctx context.Context, session string, update json.RawMessage) {
	params, err := json.Marshal(map[string]any{"sessionId": session, "update": update})
	if err == nil {
		p.noticeFromAgent(ctx, acp.NoticeSessionUpdate, params)
	}
}
