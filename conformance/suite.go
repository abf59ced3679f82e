package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// suiteTimeout bounds one run of the suite, which takes some seconds; each of
// its scenarios has a limit of its own.
const suiteTimeout = 10 * time.Minute

// Statuses of a check.
const (
	success = "SUCCESS"
	failure = "FAILURE"
	warning = "WARNING"
	info    = "INFO"
)

// check is one entry of the suite's results.
type check struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Status string `json:"status"`
	Text   string `json:"errorMessage"`
}

// outcome is one run of the suite.
type outcome struct {
	exit      int
	scenarios map[string][]check
}

func (o outcome) figures() figures {
	f := figures{scenarios: len(o.scenarios), exit: o.exit}
	for _, checks := range o.scenarios {
		f.passed += count(checks, success)
		f.failed += count(checks, failure)
	}
	return f
}

func count(checks []check, status string) (n int) {
	for _, c := range checks {
		if c.Status == status {
			n++
		}
	}
	return n
}

// drop leaves the scenarios out of which leave says so.
func (o outcome) drop(leave func(scenario string) bool) {
	for name := range o.scenarios {
		if leave(name) {
			delete(o.scenarios, name)
		}
	}
}

// suite runs the suite and reads what it wrote below dir.
func (h *harness) suite(dir string, args ...string) (outcome, error) {
	results := filepath.Join(dir, "results")
	if err := os.RemoveAll(results); err != nil {
		return outcome{}, err
	}
	if err := os.MkdirAll(results, 0o755); err != nil {
		return outcome{}, err
	}
	ctx, stop := context.WithTimeoutCause(context.Background(), suiteTimeout,
		fmt.Errorf("the suite did not end within %v", suiteTimeout))
	defer stop()
	argv := append(append(append([]string{}, h.kit.suite...), args...), "-o", results)
	var printed bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	cmd.Stdout = &printed
	if h.verbose {
		cmd.Stdout = io.MultiWriter(&printed, os.Stderr)
	}
	cmd.Stderr = cmd.Stdout
	err := cmd.Run()
	if err := os.WriteFile(filepath.Join(dir, "suite.log"), printed.Bytes(), 0o644); err != nil {
		return outcome{}, err
	}
	if cause := context.Cause(ctx); cause != nil {
		return outcome{}, cause
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return outcome{}, fmt.Errorf("run the suite: %w", err)
	}
	o, err := readResults(results, args[0])
	o.exit = cmd.ProcessState.ExitCode()
	if err == nil {
		err = o.agrees(printed.String())
	}
	if err != nil {
		text := bytes.TrimSpace(printed.Bytes())
		err = fmt.Errorf("%w; the suite said last: %s", err, text[max(0, len(text)-600):])
	}
	return o, err
}

// stamped is a folder of results: the suite adds the time to a scenario's name.
var stamped = regexp.MustCompile(`^(.+)-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d+Z$`)

// readResults reads all checks.json below dir. Folders of the server's side
// begin with "server-".
func readResults(dir, mode string) (outcome, error) {
	o := outcome{scenarios: map[string][]check{}}
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "checks.json" {
			return err
		}
		folder := path.Dir(file)
		m := stamped.FindStringSubmatch(folder)
		if m == nil {
			return fmt.Errorf("the suite's folder %q holds no scenario and time", folder)
		}
		name := m[1]
		if mode == "server" {
			name = strings.TrimPrefix(name, "server-")
		}
		data, err := fs.ReadFile(root, file)
		if err != nil {
			return err
		}
		var checks []check
		if err := json.Unmarshal(data, &checks); err != nil {
			return fmt.Errorf("%s: %w", folder, err)
		}
		if _, twice := o.scenarios[name]; twice {
			return fmt.Errorf("scenario %s is in the results twice", name)
		}
		o.scenarios[name] = checks
		return nil
	})
	return o, err
}

// totals is the suite's own sum.
var totals = regexp.MustCompile(`(?m)^Total: (\d+) passed, (\d+) failed`)

// agrees compares what was read with what the suite printed, so that no
// scenario can get lost on the way.
func (o outcome) agrees(printed string) error {
	f := o.figures()
	want := fmt.Sprintf("Total: %d passed, %d failed", f.passed, f.failed)
	switch got := totals.FindString(printed); got {
	case want:
		return nil
	case "":
		return errors.New("the suite printed no total")
	default:
		return fmt.Errorf("the suite says %q, its files %q", got, want)
	}
}
