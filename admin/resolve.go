package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/belayhq/belay"
)

// settledFor is how long a cancel by a protocol's id still finds a run that was
// settled (ORC-75): longer, and a late request would be answered for a run that
// its sender has long forgotten.
const settledFor = 30 * time.Second

// RequestText is the text by which a run's protocol id is named over REST
// (ORC-70): the value of a JSON string, anything else as it is written. It is
// empty for a run without one.
func RequestText(i *belay.Info) string {
	if s, ok := text(json.RawMessage(i.Address)); ok {
		return s
	}
	return i.Address
}

// requestIDJSON is the protocol id in its own JSON type (ORC-51).
func requestIDJSON(i *belay.Info) json.RawMessage {
	switch raw := json.RawMessage(i.Address); {
	case len(raw) == 0:
		return json.RawMessage("null")
	case i.Kind != belay.KindTask && isRequestID(raw) && json.Valid(raw):
		return raw
	default: // a protocol whose ids are plain text
		return compact(i.Address)
	}
}

// match is what a name was resolved to.
type match struct {
	one  *belay.Detail // nil: none, or several
	many []belay.Info  // more than one, newest first
	past bool          // one has been settled; only its own Stop may go on
}

// resolve finds what the name stands for within the reach (ORC-71 to ORC-76).
// An error says that not everybody could be asked; what was found stands beside
// it.
func (a *API) resolve(ctx context.Context, name string, within reach, recent bool) (match, error) {
	if id, err := belay.ParseRunID(name); err == nil {
		d, err := a.get(ctx, id, within)
		if err == nil {
			return match{one: d, past: d.Outcome.Terminal() && d.Over()}, nil
		}
		if !errors.Is(err, belay.ErrNotFound) {
			return match{}, err
		}
		// Some client may have chosen an id of this form.
	}
	runs, incomplete := a.byRequest(ctx, name, within, false)
	active := slices.DeleteFunc(slices.Clone(runs), func(i belay.Info) bool { return i.Outcome.Terminal() })
	switch len(active) {
	case 0:
	case 1:
		d := a.detail(ctx, active[0])
		return match{one: &d}, nil
	default:
		return match{many: active}, nil
	}
	if incomplete != nil {
		return match{}, incomplete // it may be active where nobody could be asked
	}
	d, err := a.settled(ctx, name, within, recent)
	return match{one: d, past: true}, err
}

// get returns one run within the reach, from the Control or from what is
// remembered. One outside of the reach is [belay.ErrNotFound].
func (a *API) get(ctx context.Context, id belay.RunID, within reach) (*belay.Detail, error) {
	d, err := a.o.Control.Get(ctx, id)
	if errors.Is(err, belay.ErrNotFound) && a.o.History != nil {
		d, err = a.o.History.Get(ctx, id)
	}
	if err != nil {
		return nil, err
	}
	if !within.sees(&d.Info) {
		return nil, belay.ErrNotFound
	}
	return &d, nil
}

// detail adds the receipt to a run; one that was forgotten meanwhile stays as
// it was seen.
func (a *API) detail(ctx context.Context, i belay.Info) belay.Detail {
	if d, err := a.o.Control.Get(ctx, i.ID); err == nil {
		return d
	}
	return belay.Detail{Info: i}
}

// byRequest lists the runs with this protocol id, newest first.
func (a *API) byRequest(ctx context.Context, name string, within reach, ended bool) ([]belay.Info, error) {
	if within.none() {
		return nil, nil
	}
	var runs []belay.Info
	var err error
	if f, ok := a.o.Control.(Finder); ok {
		runs, err = f.FindRequest(ctx, name, within.owner, ended)
	} else {
		runs, err = a.o.Control.List(ctx, belay.Filter{Owner: within.owner, Ended: ended})
	}
	var found []belay.Info
	for n := range runs {
		if i := &runs[n]; isNamed(i, name) && within.sees(i) {
			found = append(found, *i)
		}
	}
	slices.SortStableFunc(found, newestFirst)
	return found, err
}

// isNamed reports whether the run's protocol id has this text (ORC-70). Most
// runs that are asked have another one, which is seen without decoding it.
func isNamed(i *belay.Info, name string) bool {
	raw := i.Address
	if raw == "" || raw[0] != '"' || len(raw) < 2 {
		return raw != "" && raw == name
	}
	if !strings.Contains(raw, `\`) && raw[len(raw)-1] == '"' {
		return raw[1:len(raw)-1] == name
	}
	return RequestText(i) == name
}

func newestFirst(x, y belay.Info) int {
	return cmp.Or(y.Started.Compare(x.Started), byID(y.ID, x.ID))
}

// settled finds the newest settled run with this protocol id (ORC-75): for a
// cancel one that is still stopping or was settled a moment ago, for a status
// any that is remembered. nil: there is none.
func (a *API) settled(ctx context.Context, name string, within reach, recent bool) (*belay.Detail, error) {
	since := time.Now().Add(-settledFor)
	fits := func(i *belay.Info) bool {
		return i.Outcome.Terminal() && (!recent || !i.Over() || i.Ended.After(since))
	}
	runs, err := a.byRequest(ctx, name, within, true)
	for _, i := range runs {
		if fits(&i) {
			d := a.detail(ctx, i)
			return &d, nil
		}
	}
	if a.o.History == nil {
		return nil, err
	}
	old, past := a.o.History.Find(ctx, HistoryQuery{Filter: belay.Filter{Owner: within.owner}, RequestID: name, Limit: 1})
	if past != nil {
		return nil, past
	}
	for _, d := range old {
		if within.sees(&d.Info) && fits(&d.Info) {
			return &d, nil
		}
	}
	return nil, err
}
