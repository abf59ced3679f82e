package aggregate

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// library remembers which member has which resource, from what the members list.
// Its mutex comes before the session's.
type library struct {
	mu        sync.Mutex
	owners    memo[string]   // URI, or text of a template -> member
	templates memo[template] // by text
	scanned   time.Time      // when all lists had last been read to their ends
	scanning  chan struct{}  // closed when the reading that is going on ends; nil: none is
	turned    chan struct{}  // closed, and renewed, for each page of it
}

// template is a resource template, as far as a URI can be compared with it.
type template struct {
	server  string
	literal string // what stands before its first variable
}

// Bounds of reading the lists of all members.
const (
	scanAgain = 30 * time.Second // not more often, unless a member says that they changed
	scanPages = 50               // of one list of one member
)

func (l *library) init() {
	l.owners = memo[string]{max: maxOwners, bytes: maxURIs}
	l.templates = memo[template]{max: maxOwners / 10, bytes: maxURIs}
}

func (l *library) learn(uri, server string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owners.put(uri, server)
}

func (l *library) learnTemplate(text, server string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	literal, _, _ := strings.Cut(text, "{")
	l.owners.put(text, server)
	l.templates.put(text, template{server, literal})
}

// outdate forgets everything: the next URI is worth a look at all lists.
func (l *library) outdate() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.init()
	l.scanned = time.Time{}
}

// owner is the member that listed a URI.
func (l *library) owner(uri string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	server, _ := l.owners.get(uri)
	return server
}

// likely is the member with the template that has most of the URI before its
// first variable, among those that are there.
func (l *library) likely(uri string, there func(string) bool) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	best, length := "", -1
	for _, t := range l.templates.m {
		if len(t.literal) > length && strings.HasPrefix(uri, t.literal) && there(t.server) {
			best, length = t.server, len(t.literal)
		}
	}
	return best
}

// scan has the lists of all members read to their ends, once for all who want it
// at the same time, and waits for that, or until it has turned up what is
// wanted: a member that hangs does not hide what the others have.
func (s *session) scan(ctx context.Context, found func() bool) {
	l := &s.learnt
	l.mu.Lock()
	if time.Since(l.scanned) < scanAgain {
		l.mu.Unlock()
		return
	}
	done := l.scanning
	if done == nil {
		done = make(chan struct{})
		l.scanning, l.turned = done, make(chan struct{})
		if !s.goes(func() { s.scanAll(done) }) {
			l.scanning = nil
			l.mu.Unlock()
			return
		}
	}
	l.mu.Unlock()
	for {
		l.mu.Lock()
		turned := l.turned
		l.mu.Unlock()
		if found() {
			return
		}
		select {
		case <-turned:
		case <-done:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (l *library) turn() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.turned)
	l.turned = make(chan struct{})
}

func (s *session) scanAll(done chan struct{}) {
	l := &s.learnt
	began := time.Now()
	ctx, end := context.WithTimeoutCause(s.life, s.b.cfg.ListWait, errSlow)
	var wg sync.WaitGroup
	for _, name := range s.having("resources") {
		for _, method := range []string{methodListResources, methodListTemplates} {
			wg.Go(func() { s.scanOne(ctx, name, method) })
		}
	}
	wg.Wait()
	end()
	l.mu.Lock()
	l.scanned, l.scanning = began, nil
	l.mu.Unlock()
	close(done)
}

// scanOne reads one list of one member.
func (s *session) scanOne(ctx context.Context, name, method string) {
	on, err := s.reach(ctx, name)
	if err != nil {
		s.leftOut(name, method, err)
		return
	}
	what := lists[method]
	var cursor []byte
	for range scanPages {
		m, err := s.askOn(ctx, name, on, s.listRequest(method, cursor), nil)
		if err != nil {
			s.leftOut(name, method, err)
			return
		}
		p := readPage(m, &what)
		for _, e := range p.elements {
			s.learnElement(&what, name, e.key)
		}
		s.learnt.turn()
		if cursor = p.next; cursor == nil {
			return
		}
	}
}

// listRequest is a list request of ours; its id is given to it when it is sent.
func (s *session) listRequest(method string, cursor []byte) []byte {
	params := []byte("{}")
	if s.era == mcp.Modern {
		params = mcp.ModernParams()
	}
	if cursor != nil {
		rest := params[1:]
		params = append([]byte(`{"cursor":`), cursor...)
		if len(rest) > 1 {
			params = append(params, ',')
		}
		params = append(params, rest...)
	}
	return jsonrpc.AppendRequest(nil, jsonrpc.StringID("list"), method, params)
}
