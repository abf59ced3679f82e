package belay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Previewer is the ability of [Approvals] to show what would happen, before
// somebody decides. Who may look is for the door to check, before: whoever may
// decide. Safe for concurrent use.
type Previewer interface {
	// Preview has the asker show what a question is about, and returns it as
	// text of at most 32 KiB; "" says that there is nothing to see. It decides
	// nothing, and may be called as often as one likes: those who ask at the
	// same time get the same. A question that offers none is [ErrUnsupported],
	// one that was answered or has expired [ErrDecided], one that is unknown or
	// was withdrawn [ErrNotFound]; an asker that fails is [ErrUnreachable].
	Preview(ctx context.Context, id ApprovalID) (string, error)
}

var _ Previewer = (*Tree)(nil)

// Bounds of a preview.
const (
	maxPreview  = 32 << 10 // bytes of its text
	previewTime = 30 * time.Second
	previewCut  = "\n[… cut: the preview goes on, and is too long to be shown]"
)

// errShowsNothing is [ErrUnreachable] in the right words.
var errShowsNothing error = showsNothing{}

type showsNothing struct{}

func (showsNothing) Error() string { return "it shows nothing" }

func (showsNothing) Is(target error) bool { return target == ErrUnreachable }

var errPreviewTime = errors.New("the preview took too long")

// glance is one run of a preview. Its text and error are written before done is
// closed.
type glance struct {
	done chan struct{}
	text string
	err  error
}

// Preview implements [Previewer].
func (t *Tree) Preview(ctx context.Context, id ApprovalID) (string, error) {
	g, err := t.glanceAt(id)
	if err != nil {
		return "", fmt.Errorf("preview: %w", err)
	}
	select {
	case <-g.done:
		return g.text, g.err
	case <-ctx.Done():
		return "", fmt.Errorf("preview: %w", context.Cause(ctx))
	}
}

// glanceAt joins the preview that runs, or begins one. It goes on when the one who
// wanted it is gone: another may have joined.
func (t *Tree) glanceAt(id ApprovalID) (*glance, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a, err := t.openLocked(id, time.Now())
	switch {
	case err != nil:
		return nil, err
	case a.Question.Look == nil:
		return nil, fmt.Errorf("%w: %s offers no preview", ErrUnsupported, id)
	case a.glance != nil:
		return a.glance, nil
	case t.gone:
		return nil, ErrClosed
	}
	g := &glance{done: make(chan struct{})}
	a.glance = g
	look := a.Question.Look
	t.wg.Go(func() { t.look(a, g, look) })
	return g, nil
}

// look runs a preview, at the longest until the question is decided.
func (t *Tree) look(a *inquiry, g *glance, look func(context.Context) (string, error)) {
	ctx, end := context.WithTimeoutCause(a.open, previewTime, errPreviewTime)
	defer end()
	text, err := look(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	a.glance = nil
	if _, gone := t.openLocked(a.ID, time.Now()); gone != nil {
		err = gone
	}
	switch {
	case err == nil:
		g.text = cleanPreview(text)
	case CodeOf(err) == "internal": // the asker is to blame, not who looks
		g.err = fmt.Errorf("preview: %w: %w", errShowsNothing, err)
	default:
		g.err = fmt.Errorf("preview: %w", err)
	}
	close(g.done)
}

// cleanPreview is a preview as it may be shown on a terminal: cut visibly, since who
// decides is to know that there is more. Tabs stay, for it may be code.
func cleanPreview(text string) string {
	over := len(text) > maxPreview
	if over {
		text = cut(text, maxPreview-len(previewCut))
	}
	text = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return harmless(r)
	}, strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\r\n", "\n"))
	if text = strings.Trim(text, "\n"); over {
		text += previewCut
	}
	return text
}
