package admin

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/lease"
)

type registerIn struct {
	Key  string `header:"Idempotency-Key" maxLength:"128" doc:"a repeat with the same key and body is the same run"`
	Body registration
}

type registration struct {
	Kind      belay.Kind        `json:"kind" enum:"session,turn,call,task,script,process"`
	Name      string            `json:"name" minLength:"1" maxLength:"256" doc:"for people"`
	Server    string            `json:"server,omitempty" maxLength:"256" doc:"who does the work"`
	RequestID string            `json:"request_id,omitempty" maxLength:"200" doc:"how the runtime's own protocol names it"`
	Labels    map[string]string `json:"labels,omitempty" doc:"at most 32, of at most 256 bytes each"`
	Parent    string            `json:"parent,omitempty" maxLength:"64" doc:"the run above: a Stop of that is one of this"`
	Deadline  *time.Time        `json:"deadline,omitempty" doc:"when it is stopped"`
	Lease     float64           `json:"lease,omitempty" minimum:"5" maximum:"3600" doc:"seconds without a heartbeat after which the run is lost; default 60"`
	Webhook   string            `json:"webhook,omitempty" maxLength:"2048" doc:"where orders are sent: https, or http to the machine itself"`
}

type registerOut struct {
	Status   int
	Location string `header:"Location" doc:"the run"`
	Body     registered
}

type registered struct {
	Run   belay.Info `json:"run"`
	Lease leaseView  `json:"lease"`
}

// leaseView is a lease as clients see it.
type leaseView struct {
	Seconds float64   `json:"seconds"`
	Until   time.Time `json:"until" doc:"when the run is lost unless there is a heartbeat before"`
	Webhook bool      `json:"webhook" doc:"whether orders are sent to one"`
}

func viewOf(s *lease.State) *leaseView {
	return &leaseView{Seconds: s.TTL.Seconds(), Until: s.Until, Webhook: s.Webhook}
}

type beatIn struct {
	ID   string `path:"id" maxLength:"64"`
	Body *struct {
		Lease float64 `json:"lease,omitempty" minimum:"5" maximum:"3600" doc:"seconds from now on; default: as before"`
	}
}

type beatOut struct{ Body beat }

type beat struct {
	Run   belay.Info   `json:"run"`
	Lease leaseView    `json:"lease"`
	Order *lease.Order `json:"order,omitempty" doc:"the run was stopped: end the work, then report"`
}

type reportIn struct {
	ID   string `path:"id" maxLength:"64"`
	Body struct {
		Outcome  belay.Outcome `json:"outcome" enum:"completed,failed,cancelled,declined" doc:"after a Stop: what would have been answered"`
		Evidence *sighting     `json:"evidence,omitempty" doc:"what was seen; default: what the outcome says"`
		Partial  string        `json:"partial,omitempty" doc:"what there was when it was stopped, for the receipt"`
	}
}

type sighting struct {
	Kind      belay.EvidenceKind `json:"kind" enum:"not_started,handler_returned,interrupted,process_gone,result,error_reply,task_cancelled,still_active,survivors"`
	Detail    string             `json:"detail,omitempty" maxLength:"1000"`
	Survivors []survivor         `json:"survivors,omitempty" maxItems:"256" doc:"processes that are alive; then the run is not over"`
	Remote    []string           `json:"remote,omitempty" maxItems:"256" doc:"connections that the dead processes held"`
}

type survivor struct {
	PID     int    `json:"pid"`
	Command string `json:"command,omitempty"`
}

type reportOut struct{ Body reported }

type reported struct {
	Run     belay.Info     `json:"run"`
	Receipt *belay.Receipt `json:"receipt,omitempty" doc:"of a run that was stopped"`
	Late    bool           `json:"late" doc:"a Stop, or the end of the lease, came before this answer"`
	Stored  *bool          `json:"stored,omitempty" doc:"whether a final receipt will be found after a crash"`
}

func (a *API) registerLeases(api huma.API) {
	operation(a, api, []string{PermRegister}, huma.Operation{
		OperationID: "register-run", Method: http.MethodPost, Path: "/v1/runs", Tags: []string{"leases"},
		Summary:     "Register a run of another runtime",
		Description: "The runtime keeps it alive by heartbeats, learns of a Stop by the event stream, a heartbeat or its webhook, and reports how it ended. 200 for a repeat.",
		Errors:      []int{404, 409, 501}, DefaultStatus: http.StatusCreated,
		Responses: map[string]*huma.Response{"200": {Description: "Registered before, with the same key"}},
	}, a.register)
	operation(a, api, []string{PermRegister}, huma.Operation{
		OperationID: "heartbeat", Method: http.MethodPost, Path: "/v1/runs/{id}/heartbeat", Tags: []string{"leases"},
		Summary: "Say that a registered run is still there, and hear whether it was stopped",
		Errors:  []int{404, 409, 501},
	}, a.beat)
	operation(a, api, []string{PermRegister}, huma.Operation{
		OperationID: "report-run", Method: http.MethodPost, Path: "/v1/runs/{id}/report", Tags: []string{"leases"},
		Summary:     "Say how a registered run ended",
		Description: "A runtime's word is at most acknowledged. Evidence that says that work is alive does not end the run.",
		Errors:      []int{404, 409, 501},
	}, a.report)
}

// runtime is who asks, if they may register runs.
func (a *API) runtime(ctx context.Context) (*guest, error) {
	g, err := guestIn(ctx)
	switch {
	case err != nil:
		return nil, err
	case !g.May(PermRegister):
		return nil, newProblem(http.StatusForbidden, "this needs the permission "+PermRegister)
	case a.o.Leases == nil:
		return nil, problemOf(fmt.Errorf("%w: this server takes no registrations", belay.ErrUnsupported))
	}
	return g, nil
}

// register makes a run of another runtime known, once for each key.
func (a *API) register(ctx context.Context, in *registerIn) (*registerOut, error) {
	g, err := a.runtime(ctx)
	if err != nil {
		return nil, err
	}
	if in.Key == "" {
		return a.registerNew(ctx, g, &in.Body)
	}
	entry, unlock := a.begun.first(accountOf(g), in.Key)
	defer unlock()
	name := digest(&in.Body)
	switch {
	case !entry.done:
		out, err := a.registerNew(ctx, g, &in.Body)
		if err == nil {
			entry.done, entry.name, entry.run = true, name, out.Body.Run.ID
		}
		return out, err
	case entry.name != name:
		return nil, newProblem(http.StatusUnprocessableEntity, "this Idempotency-Key was used with another body")
	}
	s, err := a.o.Leases.Get(g.Name(), entry.run)
	if err != nil {
		return nil, problemOf(fmt.Errorf("%w: the run of this Idempotency-Key is over and forgotten", belay.ErrEnded))
	}
	return registeredOut(http.StatusOK, &s), nil
}

// digest tells one registration from another.
func digest(r *registration) string {
	sum := sha256.Sum256(compact(r))
	return string(sum[:])
}

func registeredOut(status int, s *lease.State) *registerOut {
	return &registerOut{status, "/v1/runs/" + s.Run.ID.String(), registered{s.Run, *viewOf(s)}}
}

func (a *API) registerNew(ctx context.Context, g *guest, r *registration) (*registerOut, error) {
	if err := a.latched(ctx); err != nil {
		return nil, err
	}
	spec, err := a.leaseSpec(ctx, g, r)
	if err != nil {
		return nil, err
	}
	s, err := a.o.Leases.Register(g.Name(), spec, seconds(r.Lease))
	if err != nil {
		return nil, problemOf(err)
	}
	// The latch may have been engaged in between, after everything that it stops
	// was stopped.
	if err := a.latched(ctx); err != nil {
		_, _ = a.o.Leases.Report(g.Name(), s.Run.ID, lease.Report{Outcome: belay.Declined})
		return nil, err
	}
	a.o.Logger.LogAttrs(ctx, slog.LevelInfo, "run registered",
		slog.String("principal", nameOf(g)), slog.String("address", g.from), slog.String("run", s.Run.ID.String()))
	return registeredOut(http.StatusCreated, &s), nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// leaseSpec is what was asked for in the words of package lease. An error is a
// problem.
func (a *API) leaseSpec(ctx context.Context, g *guest, r *registration) (s lease.Spec, err error) {
	s = lease.Spec{Kind: r.Kind, Name: r.Name, Server: r.Server, Labels: r.Labels, Webhook: r.Webhook}
	if r.Deadline != nil {
		if s.Deadline = *r.Deadline; !s.Deadline.After(time.Now()) {
			return s, problemOf(fmt.Errorf("%w: the deadline has passed", belay.ErrBadRequest))
		}
	}
	if r.RequestID != "" {
		s.Address = string(compact(r.RequestID))
		// The domain keeps so much of an address, and half an id is another id.
		if len(s.Address) > 256 || strings.ContainsFunc(r.RequestID, unicode.IsControl) {
			return s, problemOf(fmt.Errorf("%w: request_id has control characters, or more than 254 bytes", belay.ErrBadRequest))
		}
	}
	s.Parent, err = a.parentOf(ctx, g, r.Parent)
	return s, err
}

// parentOf is the run that a new one hangs below: one that the principal may
// stop, or that is theirs. Who speaks from inside a run registers below it, so
// that a Stop of the run reaches what its agent began.
func (a *API) parentOf(ctx context.Context, g *guest, named string) (belay.RunID, error) {
	inside := insideOf(g)
	if named == "" {
		if len(inside) == 0 {
			return belay.RunID{}, nil
		}
		named = inside[0]
	}
	within := a.reachOf(ctx, g, toCancel)
	if within.none() {
		within = reach{owner: g.Name()}
	}
	d, err := a.find(ctx, named, within)
	if err != nil {
		return belay.RunID{}, parentProblem(err)
	}
	return d.ID, nil
}

// parentProblem says of a problem that it is the parent's.
func parentProblem(err error) error {
	if p, ok := errors.AsType[*huma.ErrorModel](err); ok {
		p.Detail = "the parent: " + p.Detail
	}
	return err
}

func (a *API) beat(ctx context.Context, in *beatIn) (*beatOut, error) {
	g, id, err := a.leased(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	var ttl time.Duration
	if in.Body != nil {
		ttl = seconds(in.Body.Lease)
	}
	s, err := a.o.Leases.Heartbeat(g.Name(), id, ttl)
	if err != nil {
		return nil, problemOf(err)
	}
	return &beatOut{beat{s.Run, *viewOf(&s), s.Order}}, nil
}

// leased is who asks and the run that they name. Whether it is a lease of theirs
// is for the registry to say, which says the same of those that are not as of
// unknown ones. Who speaks from inside a run speaks only for runs below it: an
// agent must not report the turn that it works in as ended, after which nobody
// could stop it by that.
func (a *API) leased(ctx context.Context, text string) (*guest, belay.RunID, error) {
	g, err := a.runtime(ctx)
	if err != nil {
		return nil, belay.RunID{}, err
	}
	id, err := belay.ParseRunID(text)
	if inside := insideOf(g); err != nil || len(inside) > 0 && !a.confined(ctx, inside).below(id) {
		return nil, id, problemOf(belay.ErrNotFound)
	}
	return g, id, nil
}

func (a *API) report(ctx context.Context, in *reportIn) (*reportOut, error) {
	g, id, err := a.leased(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	rep := lease.Report{Outcome: in.Body.Outcome, Partial: in.Body.Partial}
	if e := in.Body.Evidence; e != nil {
		rep.Evidence = &belay.Evidence{Kind: e.Kind, Detail: e.Detail, Remote: e.Remote}
		for _, s := range e.Survivors {
			rep.Evidence.Survivors = append(rep.Evidence.Survivors, belay.Process{PID: s.PID, Command: s.Command})
		}
	}
	res, err := a.o.Leases.Report(g.Name(), id, rep)
	if err != nil {
		return nil, problemOf(err)
	}
	return &reportOut{reported{
		Run: res.Run, Receipt: res.Receipt, Late: res.Late,
		Stored: a.store(ctx, belay.Detail{Info: res.Run, Receipt: res.Receipt}),
	}}, nil
}
