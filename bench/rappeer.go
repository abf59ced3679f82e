package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/belayhq/belay/rap"
)

// rapServers are many tool servers in one process, written with net/http alone:
// what is measured is who calls them. Each says where it listens, in one line of
// them all; the process ends with its stdin.
type rapServers struct {
	n      int
	client *http.Client
	mu     sync.Mutex     // guards told, and stdout
	told   map[string]int // how many servers have read the cancel of a call
}

// playRAPServers serves the tools "echo", which answers by callback, and "hang",
// which only prints that it was called, at so many addresses. When the last of them
// has read the cancel of a call it prints when that was.
func playRAPServers(count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	s := &rapServers{n: n, client: manyConnections(), told: map[string]int{}}
	var urls []string
	failed := make(chan error, n)
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		base := "http://" + l.Addr().String()
		urls = append(urls, base)
		server := &http.Server{Handler: s.mux(base, i)}
		go func() { failed <- server.Serve(l) }() // ends with the process
	}
	fmt.Println(strings.Join(urls, " "))
	ended := make(chan struct{})
	go func() { // ends with the process
		defer close(ended)
		_, _ = os.Stdin.Read(make([]byte, 1))
	}()
	select {
	case err := <-failed:
		return err
	case <-ended:
		return nil
	}
}

func (s *rapServers) mux(base string, i int) http.Handler {
	schema := `{"type":"object"}`
	manifest := fmt.Sprintf(`{"name":"bench","endpoint":"%s/invoke","tools":[{"name":"echo%d","description":"echo","inputSchema":%s},`+
		`{"name":"hang%d","description":"hang","inputSchema":%s}]}`, base, i, schema, i, schema)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/rap-toolset", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, manifest)
	})
	mux.HandleFunc("POST /invoke", s.invoke)
	mux.HandleFunc("POST /close_thread", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /cancel_tool_call", s.cancel)
	return mux
}

// rapMessage has the members that the peers here need.
type rapMessage struct {
	Operation string          `json:"operation,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	GroupID   string          `json:"group_id,omitempty"`
	ID        string          `json:"id,omitempty"`
	Callback  string          `json:"callback_url,omitempty"`
	ToolCall  string          `json:"tool_call_id,omitempty"`
}

// invoke answers at once, and posts the result afterwards.
func (s *rapServers) invoke(w http.ResponseWriter, r *http.Request) {
	m, err := readRAP(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if strings.HasPrefix(m.Operation, "hang") {
		s.mu.Lock()
		defer s.mu.Unlock()
		fmt.Println("hangs")
		return
	}
	go func() {
		body, _ := json.Marshal(map[string]string{"type": "tool_result", "group_id": m.GroupID, "id": m.ID, "text": string(m.Arguments)})
		if err := post(s.client, m.Callback, body); err != nil {
			fmt.Fprintln(os.Stderr, "bench peer: callback:", err)
		}
	}()
}

func (s *rapServers) cancel(w http.ResponseWriter, r *http.Request) {
	read := time.Now()
	m, err := readRAP(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told[m.ToolCall]++; s.told[m.ToolCall] == s.n {
		delete(s.told, m.ToolCall)
		fmt.Println(stamp(read))
	}
}

func readRAP(r *http.Request) (m rapMessage, err error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(body, &m)
}

// playRAPTool is a tool server of package rap, whose tool gives back its
// arguments.
func playRAPTool() error {
	echo := func(_ context.Context, j *rap.Job) (rap.Result, error) {
		return rap.Result{Text: string(j.Arguments())}, nil
	}
	tools, err := rap.NewToolset(rap.Manifest{Name: "bench"}, rap.Operation{Tool: rap.Tool{Name: "echo0", Description: "echo"}, Run: echo})
	if err != nil {
		return err
	}
	h, err := rap.NewHandler(rap.HandlerOptions{Toolset: tools, Authenticator: rap.Loopback("bench")})
	if err != nil {
		return err
	}
	return listen(h, "")
}

// post sends one body and uses up the answer, which has to be a 200.
func post(c *http.Client, url string, body []byte) error {
	resp, err := c.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("POST %s: %s", url, resp.Status)
	}
	return err
}

// manyConnections is a client that keeps as many as it made.
func manyConnections() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConns: 4096, MaxIdleConnsPerHost: 4096}}
}
