package script

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/dop251/goja"
)

// Bounds of a preview.
const (
	PreviewTime  = 20 * time.Second // for it to settle; what it reported until then is shown
	PreviewLimit = 5 * time.Second  // for what it computes at a stretch: that holds up the answer

	maxPreview = 16 << 10 // bytes of what it shows
	previewCut = "\n[… cut: the preview goes on, and is too long to be shown]"
)

var (
	errPreview      = errors.New("it took too long")
	errPreviewExit  = errors.New("it called Script.exit while a person is asked")
	errPreviewBroke = errors.New("the tool's preview ran for too long, and could not be ended alone")
)

// glance is one run of a preview. It belongs to the call's goroutine, but for seen.
type glance struct {
	text strings.Builder
	over bool        // it has more to show than it may
	seen chan string // has room for the one text
}

// preview runs the action of a preview button, as a job of the call's loop, and
// returns what it reports until it has settled, its time is over, or ctx ends; ""
// when the person has answered before. What is wrong with it is logged only (AT-60).
func (c *Call) preview(ctx context.Context, answered <-chan struct{}) string {
	g := &glance{seen: make(chan string, 1)}
	c.loop.add(func() error { return c.beginGlance(g) })
	limit := c.options.previewTime
	if limit <= 0 {
		limit = PreviewTime
	}
	late := time.AfterFunc(limit, func() {
		c.loop.add(func() error {
			if c.glance == g {
				c.failGlance(errPreview.Error())
			}
			return nil
		})
	})
	defer late.Stop()
	select {
	case text := <-g.seen:
		return text
	case <-answered:
	case <-ctx.Done():
	}
	return ""
}

// beginGlance is a job. One that has not settled ends with it: there is one place for
// reports.
func (c *Call) beginGlance(g *glance) error {
	c.endGlance()
	if !c.asked || c.isCancelled() {
		g.seen <- ""
		return nil
	}
	c.glance = g
	_, err := c.look(goja.Undefined(), c.vm.ToValue(func(goja.FunctionCall) goja.Value {
		if c.glance == g {
			c.endGlance()
		}
		return nil
	}))
	if interrupted := (*goja.InterruptedError)(nil); err == nil || errors.As(err, &interrupted) {
		return err
	}
	c.failGlance(c.thrown(err))
	return nil
}

// endGlance shows what there is.
func (c *Call) endGlance() {
	g := c.glance
	if g == nil {
		return
	}
	c.glance = nil
	text := g.text.String()
	if g.over {
		text += previewCut
	}
	g.seen <- text
}

func (c *Call) failGlance(why string) {
	c.log("warn", "the preview failed: "+why)
	c.endGlance()
}

// show keeps what a preview reports.
func (c *Call) show(message string) {
	g := c.glance
	if g == nil || g.over {
		return
	}
	if g.text.Len() > 0 {
		message = "\n" + message
	}
	if room := maxPreview - len(previewCut) - g.text.Len(); len(message) > room {
		for room > 0 && !utf8.RuneStart(message[room]) {
			room--
		}
		message, g.over = message[:room], true
	}
	g.text.WriteString(message)
}

// turn runs one job of the loop. While a person is asked it is a preview's, or what
// the request function has left behind. Neither may hold up the answer.
func (c *Call) turn(job func() error) error {
	if !c.asked {
		return c.do(job)
	}
	number := c.job + 1
	limit := time.AfterFunc(PreviewLimit, func() { c.interruptJob(number, errPreview) })
	defer limit.Stop()
	err := c.do(job)
	interrupted := (*goja.InterruptedError)(nil)
	if !errors.As(err, &interrupted) || interrupted.Value() != errPreview { //nolint:errorlint // the very value
		return err
	}
	c.failGlance(errPreview.Error())
	if !c.sound() {
		return errPreviewBroke
	}
	return nil
}

// proof is a function that calls another behind an await.
var proof = sync.OnceValues(func() (*goja.Program, error) {
	return goja.Compile("belay", "(done) => { (async () => { await 0; done() })() }", true)
})

// sound reports whether the machine still runs what waits for promises. An interrupt
// that hits an async function behind an await leaves a frame of it on the machine's
// stack, and from then on nothing does: the execute function would never finish.
func (c *Call) sound() (sound bool) {
	code, err := proof()
	if err != nil {
		return false
	}
	err = c.do(func() error {
		v, err := c.vm.RunProgram(code)
		if err != nil {
			return err
		}
		try, _ := goja.AssertFunction(v)
		_, err = try(goja.Undefined(), c.vm.ToValue(func(goja.FunctionCall) goja.Value { sound = true; return nil }))
		return err
	})
	return sound && err == nil
}
