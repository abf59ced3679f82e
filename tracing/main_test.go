package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/belayhq/belay"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// receiver is a small OTLP receiver: what it gets is read by the official
// message types.
type receiver struct {
	*httptest.Server
	answer func(w http.ResponseWriter, r *http.Request) bool // true: it has answered

	mu      sync.Mutex
	spans   map[string]*v1.Span // by name
	raw     []byte              // of all bodies
	headers http.Header
	paths   []string
	bodies  int
	service string
	bad     error
}

func receive(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{spans: map[string]*v1.Span{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(func() {
		r.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.bad != nil {
			t.Errorf("the receiver could not read it: %v", r.bad)
		}
	})
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var body io.Reader = req.Body
	if req.Header.Get("Content-Encoding") == "gzip" {
		body, _ = gzip.NewReader(req.Body)
	}
	data, _ := io.ReadAll(body)
	r.mu.Lock()
	r.headers, r.paths, r.bodies = req.Header.Clone(), append(r.paths, req.URL.Path), r.bodies+1
	r.mu.Unlock()
	if r.answer != nil && r.answer(w, req) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.raw = append(r.raw, data...)
	all := &v1.TracesData{} // has the form of an export request
	if req.Header.Get("Content-Type") == "application/json" {
		r.note(protojson.Unmarshal(inBase64(data), all))
	} else {
		r.note(proto.UnmarshalOptions{}.Unmarshal(data, all))
	}
	if n := len(all.ProtoReflect().GetUnknown()); n > 0 {
		r.note(io.ErrUnexpectedEOF)
	}
	for _, rs := range all.GetResourceSpans() {
		for _, a := range rs.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				r.service = a.GetValue().GetStringValue()
			}
		}
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				r.spans[s.GetName()] = s
			}
		}
	}
}

func (r *receiver) note(err error) {
	if err != nil {
		r.bad = err
	}
}

// inBase64 turns the ids of OTLP's JSON, which are hexadecimal, into what the
// generic JSON form of the messages has.
func inBase64(data []byte) []byte {
	var top map[string]any
	_ = json.Unmarshal(data, &top)
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, key := range []string{"traceId", "spanId", "parentSpanId"} {
				if text, ok := v[key].(string); ok {
					b, _ := hex.DecodeString(text)
					v[key] = base64.StdEncoding.EncodeToString(b)
				}
			}
			for _, inner := range v {
				walk(inner)
			}
		case []any:
			for _, inner := range v {
				walk(inner)
			}
		}
	}
	walk(top)
	out, _ := json.Marshal(top)
	return out
}

func (r *receiver) all() map[string]*v1.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.spans)
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bodies
}

// env reads settings from a map, with the receiver's address where there is one.
func env(t *testing.T, r *receiver, vars map[string]string) Config {
	t.Helper()
	c, err := FromEnv(func(name string) string {
		if v, ok := vars[name]; ok {
			return v
		}
		if name == "OTEL_EXPORTER_OTLP_ENDPOINT" && r != nil {
			return r.URL
		}
		if name == "OTEL_BSP_SCHEDULE_DELAY" {
			return "20"
		}
		return ""
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func start(t *testing.T, o Options) *Tracer {
	t.Helper()
	tr, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close(ended()) })
	return tr
}

// ended is a context that is over.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func newTree(t *testing.T) *belay.Tree {
	t.Helper()
	tree := belay.NewTree(belay.Options{})
	t.Cleanup(func() { _ = tree.Close(ended()) })
	return tree
}

func register(t *testing.T, tree *belay.Tree, s belay.Spec) *belay.Run {
	t.Helper()
	if s.Kind == "" {
		s.Kind = belay.KindCall
	}
	r, err := tree.Register(s)
	if err != nil {
		t.Fatal(err)
	}
	r.Context() // so that there is somebody to be told
	return r
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func attrs(s *v1.Span) map[string]string {
	m := map[string]string{}
	for _, a := range s.GetAttributes() {
		switch v := a.GetValue(); {
		case v.GetStringValue() != "":
			m[a.GetKey()] = v.GetStringValue()
		case v.GetIntValue() != 0:
			m[a.GetKey()] = time.Duration(v.GetIntValue()).String()
		default:
			m[a.GetKey()] = map[bool]string{true: "true"}[v.GetBoolValue()]
		}
	}
	return m
}

func contains(r *receiver, text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Contains(r.raw, []byte(text))
}
