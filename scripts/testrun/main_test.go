package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// This test's binary is what go test runs in place of those that it builds.
func TestMain(m *testing.M) {
	if to := os.Getenv(keepEnv); to != "" {
		exit(keep(to, os.Args[1]))
	}
	os.Exit(m.Run())
}

// module writes a module of tests: a package for each text.
func module(t *testing.T, tests map[string]string) *settings {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{"go.mod": "module example.test/m\n\ngo 1.26\n"}
	for name, body := range tests {
		files[name+"/x_test.go"] = "package x\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nvar _ = os.Exit\n\n" + body
	}
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &settings{
		json: filepath.Join(t.TempDir(), "test.json"), keep: t.TempDir(), dir: dir,
		lanes: 2, again: 4, fuzz: time.Second, timeout: time.Minute, packages: []string{"./..."},
	}
}

// events counts what the file says, as "action package test".
func events(t *testing.T, file string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for line := range bytes.Lines(text) {
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if e.Action != "output" {
			n[fmt.Sprint(e.Action, " ", filepath.Base(e.Package), " ", e.Test)]++
		}
	}
	return n
}

const (
	passes = "func TestGood(t *testing.T) {\n\tif name, _ := os.Executable(); name[len(name)-5:] != \".test\" {\n\t\tt.Error(name)\n\t}\n}\n"
	once   = `func TestOnce(t *testing.T) {
	if _, err := os.Stat("was"); err != nil {
		os.WriteFile("was", nil, 0o600)
		t.Error("not yet")
	}
}
`
)

// What passes, passes; what fails once has its second look; the folder of a test
// is that of its package.
func TestRunPasses(t *testing.T) {
	s := module(t, map[string]string{"good": passes, "flaky": once + passes, "fuzz": `
func FuzzGood(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {})
}`})
	if err := run(context.Background(), s); err != nil {
		t.Error(err)
	}
	got := events(t, s.json)
	for _, want := range []string{"pass good TestGood", "pass good ", "pass flaky TestOnce", "pass flaky TestGood", "pass flaky ", "pass fuzz FuzzGood"} {
		if got[want] != 1 {
			t.Errorf("%d of %q in %v", got[want], want, got)
		}
	}
	if got["fail flaky TestOnce"] != 0 {
		t.Errorf("what failed once still counts: %v", got)
	}
	if file := filepath.Join(s.dir, "flaky", "was"); !exists(file) {
		t.Errorf("%s is not there", file)
	}
}

// Whatever fails, fails, and is counted: a test, twice; a race; a program that
// ends early; one that hangs; one that does not build; one for which there is a
// bad input. More than a few failures have no second look.
func TestRunFails(t *testing.T) {
	tests := map[string]string{
		"good": passes,
		"race": "func TestRace(t *testing.T) {\n\tn, done := 0, make(chan int)\n\tgo func() { n++; close(done) }()\n\tn++\n\t<-done\n}\n",
		"exit": "func TestExit(t *testing.T) { os.Exit(3) }\n",
		"leak": "func TestMain(m *testing.M) { m.Run(); os.Stdout.WriteString(\"leaked\\n\"); os.Exit(1) }\n" + passes,
		"hang": "func TestHang(t *testing.T) { select {} }\n",
		"not":  "func TestNot(t *testing.T) { nothing() }\n",
		"bad":  "func FuzzBad(f *testing.F) {\n\tf.Fuzz(func(t *testing.T, b []byte) {\n\t\tif len(b) > 3 {\n\t\t\tt.Error(\"long\")\n\t\t}\n\t})\n}\n",
		"once": once,
	}
	s := module(t, tests)
	s.timeout, s.fuzz = 3*time.Second, 10*time.Second
	if err := run(context.Background(), s); err == nil {
		t.Error("nothing failed")
	}
	got := events(t, s.json)
	if text, _ := os.ReadFile(s.json); !bytes.Contains(text, []byte("leaked")) {
		t.Error("what a failed package printed is lost")
	}
	for _, want := range []string{
		"pass good TestGood", "fail race TestRace", "fail exit TestExit", "fail leak ", "fail hang TestHang", "fail not ", "fail bad FuzzBad (fuzzing)", "fail once TestOnce",
	} {
		if got[want] != 1 {
			t.Errorf("%d of %q in %v", got[want], want, got)
		}
	}
}

// Someone who ends the run ends what it started.
func TestRunEnds(t *testing.T) {
	s := module(t, map[string]string{"hang": "func TestHang(t *testing.T) { os.WriteFile(\"was\", nil, 0o600); select {} }\n"})
	ctx, end := context.WithCancelCause(context.Background())
	why := fmt.Errorf("enough")
	go func() {
		for !exists(filepath.Join(s.dir, "hang", "was")) {
			time.Sleep(10 * time.Millisecond)
		}
		end(why)
	}()
	if err := run(ctx, s); err != why {
		t.Errorf("%v, want %v", err, why)
	}
	if out, err := exec.Command("pgrep", "-f", s.keep).Output(); err == nil {
		t.Errorf("still there: %s", out)
	}
}

// The slow packages of this module are there, so that the list says something.
func TestSlow(t *testing.T) {
	for _, name := range slow {
		if !exists(filepath.Join("..", "..", name)) {
			t.Errorf("%s is gone", name)
		}
	}
	if targets, err := fuzzTargets(filepath.Join("..", "..", "jsonrpc")); err != nil || !slices.IsSorted(targets) || len(targets) == 0 {
		t.Errorf("%v, %v", targets, err)
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
