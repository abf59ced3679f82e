package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// target is a fuzz target.
type target struct {
	pkg  *pkg
	name string
}

const fuzzing = " (fuzzing)" // its seeds are run as tests, too

func (one *result) isFuzz() bool {
	return len(one.failed) == 1 && strings.HasSuffix(one.failed[0], fuzzing)
}

// fuzzOne runs a fuzz target for a moment, with the binary of the tests: under
// the race detector, but without the coverage that guides a long search; that is
// what scripts/fuzz is for. It returns nothing if nothing was found.
//
// One that is still busy at the end of its time is reported as "context deadline
// exceeded" by package testing itself (a known defect of it); a finding always
// comes with a failing input, so only that counts.
func (r *runner) fuzzOne(ctx context.Context, t target) *result {
	if t.pkg.binary == "" {
		return nil // counted elsewhere
	}
	args := []string{
		t.pkg.binary, "-test.run=^$", "-test.fuzz=^" + t.name + "$", "-test.fuzztime=" + r.fuzz.String(),
		"-test.parallel=1", "-test.fuzzcachedir=" + filepath.Join(r.keep, "fuzz", nameOf(t.pkg.dir)),
	}
	if nice, err := exec.LookPath("nice"); err == nil {
		args = append([]string{nice, "-n", "19"}, args...)
	}
	ctx, end := context.WithTimeout(ctx, r.fuzz+2*time.Minute)
	defer end()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.WaitDelay = t.pkg.dir, 5*time.Second
	cmd.Env = append(os.Environ(), "PWD="+t.pkg.dir, "GOMAXPROCS=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	text := out.String()
	if err == nil || strings.Contains(text, "context deadline exceeded") && !strings.Contains(text, "Failing input") {
		return nil
	}
	one := &result{pkg: t.pkg}
	one.fail(t.name+fuzzing, text+err.Error()+"\n")
	r.say(one)
	return one
}
