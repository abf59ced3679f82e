package node

import (
	"context"
	"io"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/admin"
	"github.com/belayhq/belay/ledger"
)

// history answers from the ledger what the tree has forgotten (ORC-53).
type history struct{ l *ledger.Ledger }

// Get implements [admin.History].
func (h history) Get(ctx context.Context, id belay.RunID) (belay.Detail, error) {
	r, err := h.l.Get(ctx, id)
	return r.Detail(), err
}

// Find implements [admin.History].
func (h history) Find(ctx context.Context, q admin.HistoryQuery) ([]belay.Detail, error) {
	found, _, err := h.l.Find(ctx, queryOf(&q))
	list := make([]belay.Detail, len(found))
	for i := range found {
		list[i] = found[i].Detail()
	}
	return list, err
}

func queryOf(q *admin.HistoryQuery) ledger.Query {
	return ledger.Query{
		Kinds: q.Filter.Kinds, Owner: q.Filter.Owner, Server: q.Filter.Server, Labels: q.Filter.Labels, Under: q.Filter.Under,
		Request: q.RequestID, Stop: q.Stop, Receipt: q.Stopped, Behind: q.Before, Limit: min(q.Limit, ledger.MaxLimit),
	}
}

// export writes all receipts that the query selects.
func (h history) export(ctx context.Context, w io.Writer, f admin.Format, q admin.HistoryQuery) error {
	form := ledger.JSONLines
	if f == admin.CSV {
		form = ledger.CSV
	}
	return h.l.Export(ctx, w, form, queryOf(&q))
}

// erase removes a principal from what is remembered: here at once, where it would
// be for some minutes more, and in the file.
func (s *Server) erase(ctx context.Context, principal string) (any, error) {
	s.tree.Forget(principal)
	return s.ledger.Erase(ctx, principal)
}

// protocolOf names the protocol by which a run arrived. What hangs below a
// server's session came by MCP; other runtimes say it themselves.
func protocolOf(i *belay.Info) string {
	if p := i.Labels["protocol"]; p != "" {
		return p
	}
	if i.Address != "" {
		return "mcp"
	}
	return ""
}
