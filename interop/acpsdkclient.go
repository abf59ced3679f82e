package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/belayhq/belay/acp"
)

// sdkPress is how long the work runs before Stop, so that the witness has begun.
const sdkPress = 300 * time.Millisecond

// sdkPatience is how long one step of a session may take.
const sdkPatience = 30 * time.Second

// asAgent runs a session of the library, as a client, with somebody's agent.
func (h *harness) asAgent(p sdkPeer, r *sdkRow) error {
	argv := p.agent(r.version)
	if r.belay {
		argv = append([]string{h.belay, "acp", "--"}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Dir = r.env(), r.dir
	if h.verbose {
		cmd.Stderr = os.Stderr
	}
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
	s := &sdkSession{row: r, began: make(chan struct{}, 1), asked: make(chan struct{}, 1), recalled: make(chan error, 1)}
	s.client = acp.NewClient(acp.NewStdio(out, in), acp.ClientOptions{
		Info: acp.Info{Name: "library-client", Version: "1"}, Version: r.version,
		Update: s.updated,
		RequestPermission: func(ctx context.Context, q *acp.Request) (acp.PermissionAnswer, error) {
			if s.allows() {
				return acp.PermissionAnswer{Option: p.yes()}, nil
			}
			signalOn(s.asked)
			<-ctx.Done()
			return acp.PermissionAnswer{}, context.Cause(ctx)
		},
		Options: acp.Options{Handler: func(ctx context.Context, q *acp.Request) (any, error) {
			if q.Method() != "_wait" {
				return nil, acp.MethodNotFound(q.Method())
			}
			<-ctx.Done()
			s.recalled <- context.Cause(ctx)
			return nil, ctx.Err()
		}},
	})
	ctx, cancel := context.WithTimeout(context.Background(), 3*sdkPatience)
	defer cancel()
	err = s.talk(ctx, p)
	err = errors.Join(err, s.client.Close(ctx))
	force := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
	defer force.Stop()
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait() // how it ends is its own affair
	return err
}

type sdkSession struct {
	row      *sdkRow
	client   *acp.Client
	began    chan struct{} // the turn has said something
	asked    chan struct{} // the user is asked
	recalled chan error    // the agent cancelled a request of its own

	mu    sync.Mutex
	said  []string
	allow bool
}

func signalOn(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func (s *sdkSession) updated(_ context.Context, _ string, update json.RawMessage) {
	var u struct {
		Kind    string                `json:"sessionUpdate"`
		Content struct{ Text string } `json:"content"`
	}
	if json.Unmarshal(update, &u) != nil || u.Kind != "agent_message_chunk" {
		return
	}
	s.mu.Lock()
	s.said = append(s.said, u.Content.Text)
	s.mu.Unlock()
	signalOn(s.began)
}

func (s *sdkSession) allows() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.allow
}

func (s *sdkSession) heard(prefix string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range s.said {
		if strings.HasPrefix(text, prefix) {
			return text
		}
	}
	return ""
}

func (s *sdkSession) talk(ctx context.Context, p sdkPeer) error {
	if _, err := s.client.Initialize(ctx); err != nil {
		return err
	}
	session, err := s.client.NewSession(ctx, acp.SessionRequest{Cwd: s.row.dir})
	if err != nil {
		return err
	}
	stop, press := context.WithCancel(ctx)
	defer press()
	ended := make(chan string, 1)
	prompt := func(ctx context.Context, what string) string {
		got, err := s.client.Prompt(ctx, session.Session, acp.Text(what))
		return sdkWord(string(got.Reason), err)
	}
	next := func() string { return prompt(ctx, "quick") }
	ready := s.began
	switch s.row.event {
	case sdkRequest:
		go func() {
			err := s.client.Conn().Call(stop, "_tick", nil, nil)
			ended <- sdkWord("result", err)
		}()
		ready = nil
		next = func() string {
			var got json.RawMessage
			err := s.client.Conn().Call(ctx, "_quick", nil, &got)
			return sdkWord(string(got), err)
		}
	case sdkRecall: // the agent stops a request of its own
		end := prompt(ctx, "callback")
		select {
		case cause := <-s.recalled:
			s.row.told = fmt.Sprintf("%s, %v", s.heard("callback"), cause)
		case <-time.After(margin): // some SDKs end their turn without waiting for the answer
			s.row.told = "the handler was not told: " + end
		}
		s.row.next = next()
		return nil
	case sdkAsked:
		go func() { ended <- prompt(stop, "ask") }()
		ready = s.asked
	default:
		go func() { ended <- prompt(stop, "tick") }()
	}
	if p.quick {
		ready = nil
	}
	if err := s.row.press(ready, press); err != nil {
		return err
	}
	select {
	case s.row.told = <-ended:
	case <-ctx.Done():
		return errors.New("the turn has not ended")
	}
	s.mu.Lock()
	s.allow = true
	s.mu.Unlock()
	s.row.next = next()
	return nil
}

// press waits until the work has begun, and some more, and presses Stop.
func (r *sdkRow) press(ready chan struct{}, stop func()) error {
	if ready != nil {
		select {
		case <-ready:
		case <-time.After(sdkPatience):
			return errors.New("the work has not begun")
		}
	}
	time.Sleep(sdkPress)
	r.stop = time.Now()
	stop()
	return nil
}

// sdkWord is an end in one word.
func sdkWord(ok string, err error) string {
	var stop *acp.CancelError
	var peer *acp.Error
	switch {
	case errors.As(err, &stop):
		return string(stop.Verdict)
	case errors.As(err, &peer):
		return fmt.Sprint(peer.Code)
	case err != nil:
		return err.Error()
	}
	return ok
}
