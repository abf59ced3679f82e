package cli

import (
	"context"
	"fmt"

	"github.com/belayhq/belay"
)

// uncancelled shows a tree's runs and stops none: where cancellation.enabled is
// false Belay acts on no cancel, by whatever door it comes (ORC-64). The end of
// the server is none.
type uncancelled struct{ *belay.Tree }

// Cancel implements [belay.Control].
func (u uncancelled) Cancel(ctx context.Context, req belay.CancelRequest) ([]belay.CancelResult, error) {
	if req.DryRun {
		return u.Tree.Cancel(ctx, req)
	}
	return nil, fmt.Errorf("%w: cancellation is switched off in this server's configuration (cancellation.enabled); its clients stop their calls themselves", belay.ErrUnsupported)
}
