package config

import (
	"testing"
	"time"
)

// TestRAPServer: what a rap server does not say has its default, and words of a
// command become a list.
func TestRAPServer(t *testing.T) {
	name := write(t, "belay.yaml", `
servers:
  a: {rap: {url: "https://tools.example/a", bearer: "${T}"}}
  b: {rap: {command: python3 server.py, args: [--fast], cwd: tools, confirm_after: 20s, call_timeout: 1h, kill_server: true}}
`)
	c := load(t, Options{File: name, Getenv: env(map[string]string{"T": "x"})})
	a, b := c.Servers[0].RAP, c.Servers[1].RAP
	if a == nil || a.URL != "https://tools.example/a" || a.Bearer != "x" || a.ConfirmAfter.Value != 10*time.Second || a.CallTimeout.Value != 0 || a.KillServer {
		t.Errorf("a: %+v", a)
	}
	if b == nil || len(b.Command) != 3 || b.Command[2] != "--fast" || b.Dir == "tools" || b.ConfirmAfter.Value != 20*time.Second || b.CallTimeout.Value != time.Hour || !b.KillServer {
		t.Errorf("b: %+v", b)
	}
}
