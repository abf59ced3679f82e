package script

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/dop251/goja"
	"github.com/rogpeppe/go-internal/diff"
)

//go:embed editor.js
var editorText string

// editorProgram is compiled once for all virtual machines.
var editorProgram = sync.OnceValues(func() (*goja.Program, error) {
	return goja.Compile("belay-editor", editorText, true)
})

// Why a call may not use the editor now.
var (
	errDeskStopped  = errors.New("the call was stopped")
	errDeskQueue    = fmt.Errorf("%d operations wait already, no more are possible", maxEditorQueue)
	errDeskWritten  = fmt.Errorf("one call writes at most %d bytes", MaxEditorWritten)
	errDeskAsking   = errors.New("nothing can be written before the tool runs: the approval request only describes")
	errDeskCancel   = errors.New("onCancel cannot write")
	errDeskDeclined = errors.New("nothing can be written: nobody approved the call")
)

// desk is what one call does with the editor. The operations that scripts wait for
// go through one queue, in the order in which they were begun, so that the loop is
// free for a Stop while the disk is slow.
//
// Writing is possible while the tool runs, until the grace period after a Stop is
// over, as fetches are (AT-33); never for the approval request (AT-58), for onCancel
// (AT-22), or after a person has not agreed (AT-62). What is being written when the
// time is over becomes whole, and the call ends after it.
type desk struct {
	call    *Call
	editor  *Editor
	written int // bytes that were asked to be written; of the call's goroutine

	mu    sync.Mutex
	queue []func(over bool)
	busy  bool // a goroutine empties the queue
	over  bool // nothing is begun any more
	tasks sync.WaitGroup
}

// openDesk makes the provider that the script's functions get; nil when this call has
// no editor.
func (c *Call) openDesk(web goja.Value) (goja.Value, error) {
	if c.options.Editor == nil || !c.tool.Manifest.ScriptEditorOnly {
		return nil, nil
	}
	code, err := editorProgram()
	if err != nil {
		return nil, err
	}
	made, err := c.vm.RunProgram(code)
	if err != nil {
		return nil, err
	}
	setUp, _ := goja.AssertFunction(made)
	c.mu.Lock()
	d := &desk{call: c, editor: c.options.Editor, over: c.graced || c.over}
	c.desk = d // read when the grace period is over
	c.mu.Unlock()
	h := c.vm.NewObject()
	for name, v := range map[string]any{
		"name":         d.editor.name,
		"write":        d.editor.write,
		"DOMException": web.ToObject(c.vm).Get("DOMException"),
		"exists":       d.editor.exists,
		"list": func(folders bool) string {
			return answer(d.editor.list(folders, d.patience()))
		},
		"lint":  func() string { return answer(d.editor.lint(d.patience())) },
		"start": d.start,
		"diff":  d.diff,
	} {
		if err := h.Set(name, v); err != nil {
			return nil, err
		}
	}
	return setUp(goja.Undefined(), h)
}

// answer is what a synchronous question came to, as JSON.
func answer[T any](value T, err error) string {
	if err != nil {
		return string(asJSON(map[string]any{"error": err.Error(), "abort": errors.Is(err, errDeskStopped)}))
	}
	return string(asJSON(map[string]any{"value": value}))
}

// patience says when a long question is not worth an answer any more: when the Stop
// comes meanwhile, so that onCancel has its turn.
func (d *desk) patience() func() error {
	before := d.call.isCancelled()
	return func() error {
		if d.isOver() || !before && d.call.isCancelled() {
			return errDeskStopped
		}
		return nil
	}
}

func (d *desk) isOver() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.over
}

// start puts an operation into the queue. done gets its answer as JSON, failed why
// there is none. It is run by the call's goroutine.
func (d *desk) start(op, path, text string, done, failed goja.Callable) {
	c, settle := d.call, d.call.loop.await()
	fail := func(err error) {
		kind := ""
		if errors.Is(err, errDeskStopped) {
			kind = failAbort
		}
		settle(func() error { return c.tellFailed(failed, kind, err.Error()) })
	}
	task, err := d.task(op, path, text)
	if err != nil {
		fail(err)
		return
	}
	work := func(over bool) {
		if over {
			fail(errDeskStopped)
			return
		}
		value, tell, err := task()
		if err != nil {
			fail(err)
			return
		}
		answer := string(asJSON(value))
		settle(func() error {
			if tell != nil {
				tell()
			}
			_, err := done(goja.Undefined(), c.vm.ToValue(answer))
			return c.passInterrupt(err)
		})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.over:
		fail(errDeskStopped)
	case len(d.queue) >= maxEditorQueue:
		fail(errDeskQueue)
	default:
		d.queue = append(d.queue, work)
		if !d.busy {
			d.busy = true
			d.tasks.Go(d.empty)
		}
	}
}

// empty runs what is in the queue, and ends with it.
func (d *desk) empty() {
	for {
		d.mu.Lock()
		if len(d.queue) == 0 {
			d.busy, d.queue = false, nil
			d.mu.Unlock()
			return
		}
		work, over := d.queue[0], d.over
		d.queue[0] = nil
		d.queue = d.queue[1:]
		d.mu.Unlock()
		work(over)
	}
}

// maxDiffLines bounds what is compared: no interrupt reaches that.
const maxDiffLines = 100_000

// diff reports what would change in a file (AT-81). It has an answer at once, for a
// preview shows what was reported until it returned; what was begun before it is
// done first.
func (d *desk) diff(path, text string) {
	d.tasks.Wait()
	old, err := d.editor.read(path)
	if err == nil && len(text) > MaxEditorFile {
		err = errEditorLarge
	}
	if err != nil && !errors.Is(err, errEditorGone) {
		d.call.log("warn", "editor: "+err.Error())
		return
	}
	shown := path + ": no changes"
	switch {
	case strings.Count(old, "\n")+strings.Count(text, "\n") > maxDiffLines:
		shown = path + ": too long to be compared"
	case old != text:
		shown = string(diff.Diff(path, []byte(old), path, []byte(text)))
	}
	d.call.report(shown, "diff:"+path)
}

// task is what an operation does, away from the virtual machine. What it returns is
// the script's answer; tell, if any, is run by the call's goroutine.
func (d *desk) task(op, path, text string) (func() (value any, tell func(), err error), error) {
	e, c := d.editor, d.call
	warn := func(err error) func() { return func() { c.log("warn", "editor: "+err.Error()) } }
	if op == "read" {
		return func() (any, func(), error) {
			got, err := e.read(path)
			switch {
			case errors.Is(err, errEditorGone):
				return nil, nil, nil
			case errors.Is(err, errEditorPath):
				return nil, nil, err
			case err != nil:
				return nil, warn(err), nil
			}
			return got, nil, nil
		}, nil
	}
	if err := d.mayWrite(len(text)); err != nil {
		return nil, err
	}
	write := func() error { return e.put(path, text, op == "write") }
	if op != "write" && op != "update" {
		change, err := changeOf(op, text)
		if err != nil {
			return nil, err
		}
		write = func() error { return e.edit(path, change) }
	}
	return func() (any, func(), error) {
		switch err := write(); {
		case errors.Is(err, errEditorGone), errors.Is(err, errEdit):
			return false, warn(fmt.Errorf("%s: nothing was changed: %w", path, err)), nil
		case err != nil:
			return nil, nil, err
		}
		return true, nil, nil
	}, nil
}

// changeOf is what an edit makes of a file's text.
func changeOf(op, text string) (func(string) (string, error), error) {
	list, lines, err := parseEdits(text)
	switch {
	case err != nil:
		return nil, err
	case op == "insert" && !lines:
		return nil, errors.New("insertContent takes {startLine, content}")
	case op == "insert":
		return func(old string) (string, error) { return insertLines(old, list) }, nil
	case lines:
		return func(old string) (string, error) { return replaceLines(old, list) }, nil
	}
	return func(old string) (string, error) { return replaceBlocks(old, list) }, nil
}

// mayWrite refuses what must not be written now, and counts the rest.
func (d *desk) mayWrite(size int) error {
	c := d.call
	c.mu.Lock()
	handing := c.handing
	c.mu.Unlock()
	switch {
	case !d.editor.write:
		return errEditorRead
	case handing:
		return errDeskCancel
	case c.phase != executing:
		return errDeskAsking
	case c.ended.Declined:
		return errDeskDeclined
	case d.written+size > MaxEditorWritten:
		return errDeskWritten
	}
	d.written += size
	return nil
}

// end lets nothing begin any more (AT-33).
func (d *desk) end() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
}

// close waits until nothing is under way. What a script began without waiting for it
// is finished, unless ctx has ended or ends meanwhile: the call is stopped. A call
// that never ran has none.
func (d *desk) close(ctx context.Context) {
	if d == nil {
		return
	}
	if ctx != nil && ctx.Err() == nil {
		ended := make(chan struct{})
		heard := context.AfterFunc(ctx, func() { d.end(); close(ended) })
		d.tasks.Wait()
		if !heard() {
			<-ended
		}
	}
	d.end()
	d.tasks.Wait()
}
