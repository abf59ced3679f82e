package mcp

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"

	"github.com/belayhq/belay/jsonrpc"
)

// maxSubscriptions bounds what is remembered of one session.
const maxSubscriptions = 10_000

// Handshake remembers how a session was opened and what was set in it since,
// for [Handshake.Script] to bring a fresh process of the same server into the
// same state. It copies what it keeps. Safe for concurrent use.
type Handshake struct {
	mu          sync.Mutex
	era         Era
	opened      bool   // the server accepted a handshake
	asked       []byte // params of the last initialize, as the caller sent them
	discovered  []byte // params of the last server/discover
	params      []byte // of the handshake that was accepted
	result      []byte // as the server sent it
	initialized bool   // the caller sent notifications/initialized
	level       []byte // params of the last logging/setLevel
	subs        map[string][]byte
	order       []string // of subs, oldest first
	tools       [sha256.Size]byte
	listed      bool   // tools holds the digest of a complete tools/list
	roots       []byte // the caller's last answer to roots/list
	questions   []question
}

// question is something that the server asked at its start, and the answer.
type question struct {
	method         string
	params, result []byte
}

// Bounds of what is remembered of a server's questions at its start.
const (
	maxQuestions   = 16
	maxQuestionLen = 64 << 10
)

// Sent notes a request or notification that goes from the caller to the server.
func (h *Handshake) Sent(m *Message) {
	switch m.Method {
	case MethodInitialize, MethodDiscover, NoticeInitialized, MethodSetLevel, MethodSubscribe, MethodUnsubscribe, NoticeRoots:
	default:
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	params := bytes.Clone(m.Params.Of(m.Frame))
	switch m.Method {
	case MethodInitialize:
		h.asked = params
	case MethodDiscover:
		h.discovered = params
	case NoticeInitialized:
		h.initialized = true
	case MethodSetLevel:
		h.level = params
	case MethodSubscribe:
		h.subscribe(h.uri(m), params)
	case MethodUnsubscribe:
		uri := h.uri(m)
		delete(h.subs, uri)
		h.order = slices.DeleteFunc(h.order, func(u string) bool { return u == uri })
	case NoticeRoots:
		h.roots = nil // the server has to ask anew
	}
}

// Stands reports whether a session was opened by initialize and its caller has
// said that it is ready: then it takes notifications of any kind.
func (h *Handshake) Stands() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.opened && h.initialized && h.era == Legacy
}

func (h *Handshake) uri(m *Message) string {
	at, ok, _ := jsonrpc.Member(m.Frame, m.Params, "uri")
	if !ok {
		return ""
	}
	return m.text(at, 8<<10)
}

func (h *Handshake) subscribe(uri string, params []byte) {
	if uri == "" || len(h.subs) >= maxSubscriptions {
		return
	}
	if h.subs == nil {
		h.subs = make(map[string][]byte)
	}
	if _, ok := h.subs[uri]; !ok {
		h.order = append(h.order, uri)
	}
	h.subs[uri] = params
}

// Answered notes the server's response to a request that the caller sent. What
// the server refuses opens nothing; a legacy session, once open, is what a
// fresh process has to be put into, whatever is probed later (MCP-69, MCP-71).
func (h *Handshake) Answered(method string, firstPage bool, m *Message) {
	if !m.Result.Ok() {
		return
	}
	switch method {
	case MethodInitialize:
		h.open(Legacy, m)
	case MethodDiscover:
		h.open(Modern, m)
	case MethodListTools:
		digest, complete := toolsDigest(m)
		if !firstPage || !complete {
			return
		}
		h.mu.Lock()
		h.tools, h.listed = digest, true
		h.mu.Unlock()
	}
}

// Discovered notes the server's answer to a [MethodDiscover] of Belay's own.
func (h *Handshake) Discovered(params []byte, m *Message) {
	h.mu.Lock()
	h.discovered = params
	h.mu.Unlock()
	h.Answered(MethodDiscover, false, m)
}

func (h *Handshake) open(era Era, m *Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.opened && h.era == Legacy {
		return
	}
	h.opened, h.era, h.params = true, era, h.asked
	if era == Modern {
		h.params = h.discovered
	}
	h.result = bytes.Clone(m.Result.Of(m.Frame))
}

func toolsDigest(m *Message) (digest [sha256.Size]byte, complete bool) {
	if next, ok, _ := jsonrpc.Member(m.Frame, m.Result, "nextCursor"); ok && jsonrpc.KindAt(m.Frame, next) != jsonrpc.NullValue {
		return digest, false
	}
	tools, ok, _ := jsonrpc.Member(m.Frame, m.Result, "tools")
	if !ok {
		return digest, false
	}
	return sha256.Sum256(tools.Of(m.Frame)), true
}

// Told notes the caller's answer to a request of the server. start says that
// the server asked at its start: before a tool was called, so that the question
// belongs to no call. The last answer to roots/list is kept in any case.
func (h *Handshake) Told(method string, params []byte, start bool, answer *Message) {
	result := answer.Result.Of(answer.Frame)
	if !answer.Result.Ok() || len(result) > maxQuestionLen || len(params) > maxQuestionLen {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case method == MethodListRoots:
		h.roots = bytes.Clone(result)
	case start && len(h.questions) < maxQuestions:
		h.questions = append(h.questions, question{method, bytes.Clone(params), bytes.Clone(result)})
	}
}

// Recall is the answer that the caller gave to this question before, or nil:
// what a fresh process asks at its start does not reach the caller a second
// time (DESIGN 11, 3).
func (h *Handshake) Recall(method string, params []byte) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if method == MethodListRoots {
		return h.roots
	}
	for _, q := range h.questions {
		if q.method == method && bytes.Equal(q.params, params) {
			return q.result
		}
	}
	return nil
}

// Capability reports whether the server declared the capability at path, for
// example "resources", "subscribe": true only if its value is neither absent
// nor false nor null.
func (h *Handshake) Capability(path ...string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	whole := jsonrpc.Span{Start: 0, End: len(h.result)}
	at, ok, _ := jsonrpc.Path(h.result, whole, append([]string{"capabilities"}, path...)...)
	if !ok {
		return false
	}
	kind := jsonrpc.KindAt(h.result, at)
	return kind != jsonrpc.FalseValue && kind != jsonrpc.NullValue
}

// Ask is one message of a replay.
type Ask struct {
	Method string
	Params []byte
	Notify bool // a notification: no answer comes
}

// Script lists what has to be sent to a fresh process, in order: the opening
// request, what was set since, and tools/list if its answer is known, so that
// it can be compared. Empty for a session that was never opened.
func (h *Handshake) Script() []Ask {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.opened {
		return nil
	}
	if h.era == Modern {
		return []Ask{{Method: MethodDiscover, Params: h.params}}
	}
	script := []Ask{{Method: MethodInitialize, Params: h.params}}
	if h.initialized {
		script = append(script, Ask{Method: NoticeInitialized, Notify: true})
	}
	if h.level != nil {
		script = append(script, Ask{Method: MethodSetLevel, Params: h.level})
	}
	for _, uri := range h.order {
		script = append(script, Ask{Method: MethodSubscribe, Params: h.subs[uri]})
	}
	if h.listed && h.initialized {
		script = append(script, Ask{Method: MethodListTools})
	}
	return script
}

// ErrChanged says that a replaced server is not what it was.
var ErrChanged = fmt.Errorf("the server is not the same after its restart")

// Same compares a fresh process's answer to the replayed opening request with
// the one that the caller got: serverInfo, protocol version and capabilities
// must be equal (DESIGN 11, 3).
func (h *Handshake) Same(m *Message) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !m.Result.Ok() {
		return fmt.Errorf("%w: it refused the handshake: %.200s", ErrChanged, m.Error.Of(m.Frame))
	}
	was := jsonrpc.Span{Start: 0, End: len(h.result)}
	for _, key := range []string{"protocolVersion", "supportedVersions", "serverInfo", "capabilities"} {
		a := memberText(h.result, was, key)
		b := memberText(m.Frame, m.Result, key)
		if !bytes.Equal(a, b) {
			return changed(key, a, b)
		}
	}
	a, b := metaText(h.result, was, metaServerInfo), metaText(m.Frame, m.Result, metaServerInfo)
	if !bytes.Equal(a, b) {
		return changed("serverInfo", a, b)
	}
	return nil
}

func changed(key string, a, b []byte) error {
	return fmt.Errorf("%w: %s was %.200s and is %.200s", ErrChanged, key, orNothing(a), orNothing(b))
}

// metaText is memberText for a member of _meta, where the modern era has its
// serverInfo.
func metaText(frame []byte, s jsonrpc.Span, key string) []byte {
	if at, ok, _ := jsonrpc.Path(frame, s, "_meta", key); ok {
		return at.Of(frame)
	}
	return nil
}

// SameTools reports whether a tools/list answer is the one that the caller got.
func (h *Handshake) SameTools(m *Message) bool {
	digest, complete := toolsDigest(m)
	h.mu.Lock()
	defer h.mu.Unlock()
	return complete && digest == h.tools
}

// memberText returns a member's text, white space between tokens included:
// the same program prints the same text.
func memberText(frame []byte, s jsonrpc.Span, key string) []byte {
	if at, ok, _ := jsonrpc.Member(frame, s, key); ok {
		return at.Of(frame)
	}
	return nil
}

func orNothing(b []byte) []byte {
	if b == nil {
		return []byte("nothing")
	}
	return b
}
