package bridge

import (
	"context"
	"errors"
	"strings"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp"
)

// A question may offer a look at what would happen (AT-60). No editor has a button for
// that, so it is one more option of the permission. Who picks it has decided nothing:
// the permission is asked for again, under the tool call that then shows what there is
// to see.

// optionLook is the option that decides nothing.
const optionLook = "preview"

// choiceLook is what it stands for.
const choiceLook belay.Choice = "preview"

// withLook adds the look to the options. There is no kind for what decides nothing: it
// is a no, since an editor that answers by kinds must not take it for a yes, and the
// last, since such a one takes the first no. It is offered once. Whoever picks it
// without reading would never come to an end otherwise.
func withLook(list []acp.PermissionOption, label string) []acp.PermissionOption {
	return append(list, acp.PermissionOption{ID: optionLook, Name: label, Kind: "reject_once"})
}

// seen returns what there is to see, in words where there is nothing. An error says
// that nobody needs to be asked any more.
func (b *Bridge) seen(ctx context.Context, a *belay.Approval) (string, error) {
	text, err := b.o.Tree.Preview(ctx, a.ID)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case errors.Is(err, belay.ErrDecided), errors.Is(err, belay.ErrNotFound):
		return "", err
	case err != nil:
		b.log.Info("a preview showed nothing", "run", a.Run.ID, "error", err)
		return a.Question.Preview + ": it could not be shown.", nil
	case text == "":
		return a.Question.Preview + ": there is nothing to see.", nil
	}
	return a.Question.Preview + ":\n" + fenced(text), nil
}

// fenced makes a text code of a markdown that editors show: it may be a diff.
func fenced(text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence + "\n" + text + "\n" + fence
}
