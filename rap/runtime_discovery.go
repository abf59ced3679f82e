package rap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// Errors of discovery.
var (
	// ErrManifest says that a server's manifest cannot be used; nothing of it is
	// loaded (RAP-48).
	ErrManifest = errors.New("the manifest is refused")
	// ErrClash says that tools of two servers have one name; none of them is offered
	// (RAP-49).
	ErrClash = errors.New("two servers have a tool of this name")
)

// discoverWait bounds one question for a manifest.
const discoverWait = 10 * time.Second

// Loaded is a tool that a thread may call.
type Loaded struct {
	Server string
	Tool
}

// loadedTools are what a session has loaded. They never change.
type loadedTools struct {
	manifests map[string]*Manifest // by server
	tools     map[string]tooled
	order     []Loaded
}

type tooled struct {
	server *server
	tool   *Tool
}

// Reserved are names that no tool may have: Belay's own, by which a model cancels
// a subscription and is told of events (RAP-75, RAP-77).
var Reserved = []string{"cancel_subscription", "subscription_event"}

// Load discovers the servers of the thread anew, all at the same time. What could
// be loaded is loaded; the error, which errors.Is finds to be [ErrManifest],
// [ErrClash] or [belay.ErrUnreachable], says of each server and tool that is
// missing why. A server that cannot be reached goes on with its last manifest
// (RAP-50); one whose manifest is bad does not.
func (th *Thread) Load(ctx context.Context) error {
	servers, err := th.servers()
	if err != nil {
		return err
	}
	found := make([]*Manifest, len(servers))
	errs := make([]error, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() { found[i], errs[i] = th.rt.manifest(ctx, s) })
	}
	wg.Wait()
	t := &loadedTools{manifests: map[string]*Manifest{}, tools: map[string]tooled{}}
	for i, s := range servers {
		if errs[i] != nil {
			th.rt.log.Warn("a tool server's tools are not loaded", "server", s.Name, "error", errs[i])
		}
		if found[i] != nil {
			t.manifests[s.Name] = found[i]
		}
	}
	clash := t.join(servers, th.rt)
	th.mu.Lock()
	th.tools = t
	th.mu.Unlock()
	return errors.Join(errors.Join(errs...), clash)
}

// servers are those whose tools the thread is to have.
func (th *Thread) servers() ([]*server, error) {
	rt := th.rt
	th.mu.Lock()
	names := th.o.Servers
	th.mu.Unlock()
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if names == nil {
		return rt.order, nil
	}
	list := make([]*server, 0, len(names))
	for _, name := range names {
		s := rt.servers[name]
		if s == nil {
			return nil, fmt.Errorf("%w: no tool server is named %q", belay.ErrBadRequest, name)
		}
		list = append(list, s)
	}
	return list, nil
}

// join makes one list of all tools. A name that two of them have is nobody's.
func (t *loadedTools) join(servers []*server, rt *Runtime) error {
	var errs []error
	lost := map[string]bool{}
	for _, s := range servers {
		m := t.manifests[s.Name]
		if m == nil {
			continue
		}
		for i := range m.Tools {
			tool := &m.Tools[i]
			other, clash := t.tools[tool.Name]
			switch {
			case slices.Contains(Reserved, tool.Name):
				errs = append(errs, fmt.Errorf("%w: %s of %s: the name is reserved", ErrClash, tool.Name, s.Name))
			case clash || lost[tool.Name]:
				with := "others"
				if clash {
					with = other.server.Name
				}
				errs = append(errs, fmt.Errorf("%w: %s, of %s and %s; neither is offered", ErrClash, tool.Name, with, s.Name))
				lost[tool.Name] = true
				delete(t.tools, tool.Name)
			default:
				t.tools[tool.Name] = tooled{s, tool}
			}
		}
	}
	for _, s := range servers {
		if m := t.manifests[s.Name]; m != nil {
			for i := range m.Tools {
				if at, ok := t.tools[m.Tools[i].Name]; ok && at.server == s {
					t.order = append(t.order, Loaded{s.Name, m.Tools[i]})
				}
			}
		}
	}
	for _, err := range errs {
		rt.log.Warn("a tool is not offered", "error", err)
	}
	return errors.Join(errs...)
}

// Tools are the tools that the thread may call, in the order of servers and
// manifests. Descriptions and annotations are the servers' words, and prove
// nothing (RAP-52). Nil before Load.
func (th *Thread) Tools() []Loaded {
	if t := th.loaded(); t != nil {
		return slices.Clone(t.order)
	}
	return nil
}

// Manifest is what the server said; nil: it is not loaded.
func (th *Thread) Manifest(server string) *Manifest {
	if t := th.loaded(); t != nil {
		return t.manifests[server]
	}
	return nil
}

// loaded are the toolsets of the thread's session.
func (th *Thread) loaded() *loadedTools {
	th.mu.Lock()
	above, tools := th.o.Session, th.tools
	th.mu.Unlock()
	if above == nil || above == th {
		return tools
	}
	above.mu.Lock()
	defer above.mu.Unlock()
	return above.tools
}

// manifest asks a server for its manifest.
func (rt *Runtime) manifest(ctx context.Context, s *server) (*Manifest, error) {
	m, in, err := rt.askApart(ctx, s)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.cached, s.instance = m, in
		return m, nil
	}
	err = fmt.Errorf("tool server %q: %w", s.Name, err)
	if errors.Is(err, ErrManifest) || s.cached == nil {
		return nil, err
	}
	rt.log.Warn("a tool server could not be asked; its last manifest is used", "server", s.Name, "error", err)
	return s.cached, nil
}

// askApart asks for whoever may not wait to the end: the question itself goes on, since
// a request that is broken off can take the connection of another one with it.
func (rt *Runtime) askApart(ctx context.Context, s *server) (m *Manifest, in Instance, err error) {
	done := make(chan struct{})
	var answer struct {
		m   *Manifest
		in  Instance
		err error
	}
	asked := rt.spawn(func() {
		defer close(done)
		answer.m, answer.in, answer.err = rt.ask(rt.life, s)
	})
	if !asked {
		return nil, nil, belay.ErrClosed
	}
	select {
	case <-done:
		return answer.m, answer.in, answer.err
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
}

// ask is one question. A redirect is no manifest: another host would otherwise
// speak for this one.
func (rt *Runtime) ask(ctx context.Context, s *server) (*Manifest, Instance, error) {
	base, in, err := s.up(ctx)
	if err != nil {
		return nil, nil, err
	}
	ctx, end := context.WithTimeoutCause(ctx, discoverWait, slowError(discoverWait))
	defer end()
	resp, err := s.link.do(ctx, http.MethodGet, base.At(PathDiscovery), nil)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", belay.ErrUnreachable, err)
	}
	defer resp.Body.Close()
	switch code := resp.StatusCode; {
	case code >= 500:
		return nil, nil, fmt.Errorf("%w: %w", belay.ErrUnreachable, statusError(code))
	case code >= 300 && code < 400:
		return nil, nil, fmt.Errorf("%w: it answers with a redirect (%w), which is not followed: say the right base URL", ErrManifest, statusError(code))
	case code != http.StatusOK:
		return nil, nil, fmt.Errorf("%w: %w", ErrManifest, statusError(code))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxManifest+1))
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", belay.ErrUnreachable, withoutURL(err))
	}
	m, err := ParseManifest(body)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	if err := rt.allowed(base, m.Endpoint); err != nil {
		return nil, nil, fmt.Errorf("%w: endpoint: %w", ErrManifest, err)
	}
	return m, in, nil
}

// up is where the server is; one that is started here is started.
func (s *server) up(ctx context.Context) (Base, Instance, error) {
	if s.Process == nil {
		return s.base, nil, nil
	}
	in, err := s.Process.Start(ctx)
	if err != nil {
		return Base{}, nil, fmt.Errorf("%w: %w", belay.ErrUnreachable, err)
	}
	base, err := ParseBase(in.Base())
	if err != nil {
		return Base{}, nil, fmt.Errorf("%w: %w", belay.ErrUnreachable, err)
	}
	return base, in, nil
}

// allowed says whether a URL that the server named may be posted to: one of its
// own host, or what the operator allows. Nobody is led from an encrypted
// connection to one in the clear.
func (rt *Runtime) allowed(base Base, address string) error {
	u, err := CheckURL(address)
	switch {
	case err != nil:
		return err
	case base.url.Scheme == "https" && u.Scheme != "https":
		return fmt.Errorf("%w: the server is reached by https, and the URL is not", ErrMalformed)
	case sameHost(&base.url, u):
		return nil
	case rt.o.AllowURL == nil:
		return fmt.Errorf("%w: the URL leads to %s, which is not the server's own host, and no other is allowed", ErrMalformed, u.Hostname())
	}
	if err := rt.o.AllowURL(u); err != nil {
		return fmt.Errorf("%w: the URL leads to %s: %w", ErrMalformed, u.Hostname(), err)
	}
	return nil
}

func sameHost(a, b *url.URL) bool { return a.Scheme == b.Scheme && a.Host == b.Host }

// linkTo is how an address that the server named is posted to: with the server's
// credentials only where they belong.
func (rt *Runtime) linkTo(s *server, base Base, address string) link {
	u, err := url.Parse(address)
	if err == nil && sameHost(&base.url, u) {
		return s.link
	}
	return newLink(rt.o.Foreign, nil)
}
