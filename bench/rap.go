package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/rap"
)

// rap measures package rap: what telling many servers takes, and what a call
// costs, beside the same bytes sent with net/http alone.
func (b *bench) rap() error {
	for _, n := range []int{1, 10, 100, 1000} {
		if err := b.rapFanOut(n); err != nil {
			b.report.failed(fmt.Sprintf("rap cancel, %d servers", n), err)
		}
	}
	if err := b.rapCalls(); err != nil {
		b.report.failed("rap invocation", err)
	}
	return nil
}

// rapCaller is a runtime: Belay's, or the plainest one there can be.
type rapCaller interface {
	// call has the first server echo, and waits for its callback.
	call() error
	// hang has the first server begin a call, and returns what cancels it: that tells
	// every server, and returns when the caller is settled.
	hang() (cancel func(), err error)
	close() error
}

// rapFanOut measures the cancel of one call with so many servers, all of which are
// told. The connections are warm: those of a runtime that has been at work.
func (b *bench) rapFanOut(n int) error {
	one, err := b.openRAP(role(roleRAP, strconv.Itoa(n), "x"))
	if err != nil {
		return err
	}
	defer one.close()
	repeat := max(3, 60/n)
	all, settled, used := map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
	for range b.rounds {
		for _, name := range one.names {
			var told, ends []float64
			var busy time.Duration
			for i := range repeat + 1 {
				end, last, cpu, err := one.cancel(one.open[name])
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				if i == 0 {
					continue // makes the connections
				}
				told, ends = append(told, milli(last)), append(ends, micro(end))
				busy += cpu
			}
			all[name] = append(all[name], median(told))
			settled[name] = append(settled[name], median(ends))
			used[name] = append(used[name], micro(busy)/float64(repeat*n))
		}
	}
	delete(settled, "direct") // nobody is settled there
	what := fmt.Sprintf("rap cancel, %d servers", n)
	r := b.report.compare(what+": caller settled", "us", settled)
	r.bar = "< 50000"
	r.judge(r.value("belay") < 50_000)
	r = b.report.compare(what+": the last has read it", "ms", all)
	if n <= 10 {
		r.bar = "< 100"
		r.judge(r.value("belay") < 100)
	}
	r.say("direct: as many POSTs at once with net/http")
	b.report.compare(what+": processor time per server", "us", used).note = "of the runtime alone"
	return nil
}

// rapCalls measures a call beside a plain POST and its callback, one at a time and
// 64 at once: with Belay's runtime, with Belay's tool server, and with both.
func (b *bench) rapCalls() error {
	alone, err := b.openRAP(role(roleRAP, "1", "x"))
	if err != nil {
		return err
	}
	defer alone.close()
	handler, err := b.openRAP(role(roleRAPTool, "x", "x"))
	if err != nil {
		return err
	}
	defer handler.close()
	const direct, runtime, server, both = "direct", "Belay's runtime", "Belay's tool server", "Belay at both ends"
	callers := []struct {
		name string
		rapCaller
		server int
	}{
		{direct, alone.open["direct"], alone.servers.root()},
		{runtime, alone.open["belay"], alone.servers.root()},
		{server, handler.open["direct"], handler.servers.root()},
		{both, handler.open["belay"], handler.servers.root()},
	}
	n := 2000
	if b.quick {
		n = 200
	}
	for _, load := range []struct {
		name    string
		callers int
	}{{"one at a time", 1}, {"64 in flight", inFlight}} {
		took, used, served := map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
		for range b.rounds {
			for _, c := range callers {
				if _, err := many(c, load.callers, n/10); err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				before, beforeServer := ownTime(), processorTime([]int{c.server})
				times, err := many(c, load.callers, n)
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				took[c.name] = append(took[c.name], median(times))
				used[c.name] = append(used[c.name], micro(ownTime()-before)/float64(n))
				served[c.name] = append(served[c.name], micro(processorTime([]int{c.server})-beforeServer)/float64(n))
			}
		}
		for _, name := range []string{runtime, server, both} {
			r := b.report.compare("rap invocation, posted -> called back, "+load.name+", "+name, "us",
				map[string][]float64{"direct": took[direct], "belay": took[name]})
			judgePaired(r, "direct", -1, 1.5)
		}
		b.report.compare("rap invocation, processor time of the runtime, "+load.name, "us",
			map[string][]float64{"direct": used[direct], "belay": used[runtime]})
		b.report.compare("rap invocation, processor time of the tool server, "+load.name, "us",
			map[string][]float64{"direct": served[direct], "belay": served[server]})
	}
	return nil
}

// many makes n calls from so many callers and returns how long each took, in
// microseconds.
func many(c rapCaller, callers, n int) ([]float64, error) {
	var mu sync.Mutex // guards times and failed
	var times []float64
	var failed error
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range max(n/callers, 1) {
				began := time.Now()
				err := c.call()
				took := micro(time.Since(began))
				mu.Lock()
				times, failed = append(times, took), errors.Join(failed, err)
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return times, failed
}

// rapScene is a process of tool servers, and the runtimes that call them.
type rapScene struct {
	servers *peer
	names   []string
	open    map[string]rapCaller
}

func (b *bench) openRAP(argv []string) (*rapScene, error) {
	servers, err := startPeer(argv, nil)
	if err != nil {
		return nil, err
	}
	s := &rapScene{servers: servers, open: map[string]rapCaller{}}
	line, err := servers.line()
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	urls := strings.Fields(string(line))
	for _, way := range []struct {
		name string
		open func([]string) (rapCaller, error)
	}{{"direct", openPlainRAP}, {"belay", openBelayRAP}} {
		c, err := way.open(urls)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", way.name, err), s.close())
		}
		s.names = append(s.names, way.name)
		s.open[way.name] = c
	}
	return s, nil
}

// answers is more than answers need to come back in.
const answers = 20 * time.Millisecond

// cancel stops one call: how long until the caller was settled, and until the last
// server had read of it, and the processor time until all had answered.
func (s *rapScene) cancel(c rapCaller) (settled, last, cpu time.Duration, err error) {
	cancel, err := c.hang()
	if err != nil {
		return 0, 0, 0, err
	}
	if _, err := s.servers.line(); err != nil { // it hangs
		return 0, 0, 0, fmt.Errorf("%w; stderr: %s", err, s.servers.err)
	}
	before, began := ownTime(), time.Now()
	cancel()
	settled = time.Since(began)
	line, err := s.servers.line()
	if err != nil {
		return 0, 0, 0, fmt.Errorf("%w; stderr: %s", err, s.servers.err)
	}
	at, err := strconv.ParseInt(strings.TrimSpace(string(line)), 10, 64)
	if err != nil {
		return 0, 0, 0, err
	}
	time.Sleep(answers) // which costs no processor time
	return settled, time.Unix(0, at).Sub(began.Round(0)), ownTime() - before, nil
}

func (s *rapScene) close() error {
	var errs []error
	for _, c := range s.open {
		errs = append(errs, c.close())
	}
	return errors.Join(append(errs, s.servers.close())...)
}

// hook serves callbacks on loopback.
func hook(h http.Handler) (base string, server *http.Server, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server = &http.Server{Handler: h}
	go func() { _ = server.Serve(l) }() // ends with server.Close
	return "http://" + l.Addr().String(), server, nil
}

// plainRAP is a runtime that checks nothing, records nothing and tells everybody.
type plainRAP struct {
	urls   []string
	to     string // the first server's endpoint
	client *http.Client
	hook   string
	server *http.Server

	telling sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	seq     int
	pending map[string]chan struct{}
}

func openPlainRAP(urls []string) (rapCaller, error) {
	p := &plainRAP{urls: urls, client: manyConnections(), pending: map[string]chan struct{}{}}
	resp, err := p.client.Get(urls[0] + rap.PathDiscovery)
	if err != nil {
		return nil, err
	}
	var manifest rap.Manifest
	err = json.NewDecoder(resp.Body).Decode(&manifest)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	p.to = manifest.Endpoint
	p.hook, p.server, err = hook(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, err := readRAP(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if done := p.pending[m.ID]; done != nil {
			close(done)
			delete(p.pending, m.ID)
		}
	}))
	return p, err
}

func (p *plainRAP) begin(tool string) (id string, done chan struct{}, err error) {
	done = make(chan struct{})
	p.mu.Lock()
	p.seq++
	id = "call_" + strconv.Itoa(p.seq)
	p.pending[id] = done
	p.mu.Unlock()
	body, err := json.Marshal(rapMessage{
		Operation: tool + "0", Arguments: rapArguments, GroupID: "thread_1", ID: id, Callback: p.hook + "/callback/" + id,
	})
	if err == nil {
		err = post(p.client, p.to, body)
	}
	return id, done, err
}

func (p *plainRAP) call() error {
	_, done, err := p.begin("echo")
	if err == nil {
		<-done
	}
	return err
}

func (p *plainRAP) hang() (func(), error) {
	id, _, err := p.begin("hang")
	return func() {
		body := fmt.Appendf(nil, `{"thread_id":"thread_1","tool_call_id":"%s"}`, id)
		for _, url := range p.urls {
			p.telling.Go(func() { _ = post(p.client, url+"/cancel_tool_call", body) })
		}
	}, err
}

func (p *plainRAP) close() error {
	p.telling.Wait()
	p.client.CloseIdleConnections()
	return p.server.Close()
}

// rapArguments make an invocation of about 300 B.
var rapArguments = json.RawMessage(`{"text":"` + strings.Repeat("x", 70) + `"}`)

// belayRAP is Belay's runtime.
type belayRAP struct {
	tree    *belay.Tree
	runtime *rap.Runtime
	thread  *rap.Thread
	server  *http.Server
}

func openBelayRAP(urls []string) (rapCaller, error) {
	p := &belayRAP{tree: belay.NewTree(belay.Options{})}
	o := rap.RuntimeOptions{Tree: p.tree}
	for i, url := range urls {
		o.Servers = append(o.Servers, rap.Server{Name: "s" + strconv.Itoa(i), Base: url})
	}
	var err error
	if p.runtime, err = rap.NewRuntime(o); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/rap/callback/", p.runtime)
	base, server, err := hook(mux)
	if err != nil {
		return nil, err
	}
	p.server = server
	if err := p.runtime.SetCallback(base + "/rap/callback"); err != nil {
		return nil, err
	}
	if p.thread, err = p.runtime.Open(rap.ThreadOptions{}); err != nil {
		return nil, err
	}
	return p, p.thread.Load(context.Background())
}

func (p *belayRAP) call() error {
	_, err := p.thread.Do(context.Background(), rap.CallOptions{Tool: "echo0", Arguments: rapArguments})
	return err
}

func (p *belayRAP) hang() (func(), error) {
	c, err := p.thread.Invoke(rap.CallOptions{Tool: "hang0", Arguments: rapArguments})
	if err != nil {
		return nil, err
	}
	return func() {
		c.Run().Cancel(belay.Cancellation{Cause: belay.CauseUser})
		<-c.Done()
	}, nil
}

func (p *belayRAP) close() error {
	err := p.runtime.Close(context.Background(), belay.Cancellation{})
	return errors.Join(err, p.server.Close())
}
