package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/belayhq/belay/internal/faketool"
)

// behind starts what a row's client will talk to: the server itself, Belay
// before it, or Belay with the server as its child. end stops all of it.
func (h *harness) behind(r *httpRow, dir, runtime, witness string) (at *url.URL, end func(), err error) {
	end = func() {}
	address := ""
	if !r.server.stdio {
		server, address0, err := h.remote(r.server, witness)
		if err != nil {
			return nil, nil, err
		}
		address = address0
		end = func() { server.stop(0) }
	}
	if r.belay {
		belay, address0, err := h.serve(r, dir, runtime, witness, address)
		if err != nil {
			end()
			return nil, nil, err
		}
		address = address0
		server := end
		end = func() {
			if !belay.stop(8*time.Second) && r.problem == "" {
				r.problem = "belay serve did not end when it was asked to"
			}
			if r.server.stdio && r.problem == "" {
				if left := faketool.WaitDead(pidsOf(faketool.NewWitness(witness)), time.Second); len(left) > 0 {
					r.problem = fmt.Sprintf("belay serve left alive: %v", left)
				}
			}
			server()
		}
	}
	if at, err = url.Parse(address); err != nil {
		end()
		return nil, nil, err
	}
	return at, end, nil
}

// serve starts Belay in front of the one server and returns its URL.
func (h *harness) serve(r *httpRow, dir, runtime, witness, remote string) (*process, string, error) {
	disconnect := "detach"
	if r.cancels {
		disconnect = "cancel"
	}
	server := map[string]any{"url": remote}
	if remote == "" {
		server = map[string]any{"command": r.server.argv(witness)}
	}
	config, err := json.Marshal(map[string]any{ // JSON is YAML, too
		"defaults": map[string]any{"enforce": "strict", "grace": grace.String(), "disconnect": disconnect},
		"servers":  map[string]any{"peer": server},
	})
	if err != nil {
		return nil, "", err
	}
	file := filepath.Join(dir, "belay.yaml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, "", err
	}
	in, out, err := os.Pipe()
	if err != nil {
		return nil, "", err
	}
	belay, err := h.start([]string{h.belay, "serve", "--config", file, "--listen", "127.0.0.1:0", "--json"},
		[]string{"BELAY_RUNTIME_DIR=" + runtime, "BELAY_STATE_DIR=" + runtime}, out)
	_ = out.Close()
	if err != nil {
		_ = in.Close()
		return nil, "", err
	}
	address, err := announced(in)
	if err != nil {
		belay.stop(0)
		return nil, "", err
	}
	return belay, address, nil
}

// announced reads where Belay serves, and goes on reading until it ends.
func announced(in *os.File) (string, error) {
	defer func() {
		go func() { // ends with Belay's output
			defer in.Close()
			_, _ = io.Copy(io.Discard, in)
		}()
	}()
	_ = in.SetReadDeadline(time.Now().Add(15 * time.Second)) // a pipe has one
	line, err := bufio.NewReader(in).ReadBytes('\n')
	if err != nil {
		return "", fmt.Errorf("belay serve says nothing: %w", err)
	}
	_ = in.SetReadDeadline(time.Time{})
	var said struct {
		Servers []struct {
			URL string `json:"url"`
		} `json:"servers"`
	}
	if err := json.Unmarshal(line, &said); err != nil || len(said.Servers) != 1 {
		return "", fmt.Errorf("belay serve says %q: %w", line, err)
	}
	return said.Servers[0].URL, nil
}
