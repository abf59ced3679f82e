package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestAT36_Scripts: what holds for a server of scripts that says little, whatever is
// said of all servers, and what it can say itself.
func TestAT36_Scripts(t *testing.T) {
	name := write(t, "belay.yaml", `
defaults: {isolation: shared, enforce: never, restart: drain, spares: 9, at_once: 3, grace: 1s}
servers:
  short: {scripts: {dirs: [tools, ~/more, /abs]}}
  shared: {isolation: shared, scripts: {dirs: [tools]}}
  full:
    at_once: 0
    spares: 0
    grace: 5s
    scripts: {dirs: [tools], memory: 64MiB, cpu: 2s, editor_root: ., editor_write: true, allow_hosts: ["*"], auto_approve: true, approval_timeout: 1m}
  other: {command: x}
`)
	dir := filepath.Dir(name)
	if err := os.Mkdir(filepath.Join(dir, "tools"), 0o700); err != nil {
		t.Fatal(err)
	}
	c := load(t, Options{File: name, Flags: Policy{Isolation: Some("shared"), ToolPolicy: ToolPolicy{Enforce: Some("auto")}}, Getenv: env(map[string]string{"HOME": dir})})
	short, shared, full, other := &c.Servers[0], &c.Servers[1], &c.Servers[2], &c.Servers[3]
	if want := []string{filepath.Join(dir, "tools"), filepath.Join(dir, "more"), "/abs"}; !slices.Equal(short.Scripts.Dirs, want) {
		t.Errorf("dirs %q, not %q", short.Scripts.Dirs, want)
	}
	for _, s := range []*Server{short, shared, full} {
		if s.Enforce.Value != "strict" || s.Restart.Value != "safe" {
			t.Errorf("%s: enforce %s, restart %s", s.Name, s.Enforce.Value, s.Restart.Value)
		}
	}
	for _, want := range []struct {
		server    *Server
		isolation string
		spares    int
		atOnce    int
		grace     time.Duration
		scripts   Scripts // but for the folders
	}{
		{short, "call", 4, 8, time.Second, Scripts{Memory: 256 << 20, ApprovalTimeout: 10 * time.Minute}},
		{shared, "shared", 0, 8, time.Second, Scripts{Memory: 1 << 30, ApprovalTimeout: 10 * time.Minute}},
		{full, "call", 0, 0, 5 * time.Second, Scripts{
			Memory: 64 << 20, CPU: 2 * time.Second, EditorRoot: dir, EditorWrite: true,
			AllowHosts: []string{"*"}, AutoApprove: true, ApprovalTimeout: time.Minute,
		}},
	} {
		s := want.server
		if s.Isolation.Value != want.isolation || s.Spares.Value != want.spares || s.AtOnce.Value != want.atOnce || s.Grace.Value != want.grace {
			t.Errorf("%s: %+v", s.Name, s.Policy)
		}
		want.scripts.Dirs = s.Scripts.Dirs
		if !reflect.DeepEqual(*s.Scripts, want.scripts) {
			t.Errorf("%s: %+v, want %+v", s.Name, *s.Scripts, want.scripts)
		}
	}
	if other.Spares.Value != 9 || other.AtOnce.Value != 3 || other.Enforce.Value != "never" {
		t.Errorf("other: %+v", other.Policy)
	}
	notes := strings.Join(c.Notes, "\n")
	for _, want := range []string{"there is no folder " + filepath.Join(dir, "more"), "there is no folder /abs", `server "other": spares have no effect`} {
		if !strings.Contains(notes, want) {
			t.Errorf("no note of %q: %s", want, notes)
		}
	}
}

// TestCompleteScripts: a command line gets the same, and the same is refused.
func TestCompleteScripts(t *testing.T) {
	s, err := CompleteScripts(Server{Name: "x", Scripts: &Scripts{Dirs: []string{"/x"}}})
	if err != nil || s.Scripts.Memory != 256<<20 || s.Scripts.ApprovalTimeout != 10*time.Minute || s.Enforce.Value != "strict" || s.Spares.Value != 4 {
		t.Errorf("%+v %+v %v", s, s.Scripts, err)
	}
	for _, bad := range []Scripts{
		{},
		{Dirs: []string{"/x"}, AllowHosts: []string{"http://x"}},
		{Dirs: []string{"/x"}, Memory: 1 << 20},
		{Dirs: []string{"/x"}, EditorWrite: true},
	} {
		if _, err := CompleteScripts(Server{Name: "x", Scripts: &bad}); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}
