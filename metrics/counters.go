package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// counters are the metrics that events and callers push. Each is safe for
// concurrent use.
type counters struct {
	started, ended    *prometheus.CounterVec   // kind, server (, outcome)
	took              *prometheus.HistogramVec // kind, outcome
	cancelled         *prometheus.CounterVec   // kind, cause
	verdicts          *prometheus.CounterVec   // cause, verdict
	told              prometheus.Histogram
	final             *prometheus.HistogramVec // verdict
	steps             *prometheus.CounterVec   // step, result
	evidence          *prometheus.CounterVec   // evidence, scope
	escalations, late prometheus.Counter
	lateEvidence      *prometheus.CounterVec // verdict
	survivors, alive  prometheus.Counter
	missed, resyncs   prometheus.Counter
	stones            *prometheus.CounterVec // door
	restarts          *prometheus.CounterVec // server
	refused           *prometheus.CounterVec // surface, class
}

// Buckets, in seconds. Told is a matter of micro- and milliseconds (the bar is
// 1 ms inside Belay). The times to the end of a Stop lie around the ladder's
// numbers: grace 2 s, kill at 5 s, given up at 10 s.
var (
	toldBuckets  = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5}
	finalBuckets = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2, 2.5, 3, 5, 6, 8, 10, 15, 30, 60}
	runBuckets   = []float64{.001, .005, .025, .1, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 21600}
)

func newCounters(reg *prometheus.Registry) *counters {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		reg.MustRegister(v)
		return v
	}
	one := func(name, help string) prometheus.Counter { return counter(name, help).WithLabelValues() }
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		reg.MustRegister(v)
		return v
	}
	told := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "belay_stop_told_seconds", Help: "Time from a Stop to its delivery to the backend.", Buckets: toldBuckets,
	})
	reg.MustRegister(told)
	return &counters{
		told:         told,
		started:      counter("belay_runs_started_total", "Runs that were registered.", "kind", "server"),
		ended:        counter("belay_runs_ended_total", "Runs for which neither caller nor work waits any more.", "kind", "server", "outcome"),
		took:         histogram("belay_run_duration_seconds", "Time from registration until neither caller nor work waited any more; not of sessions.", runBuckets, "kind", "outcome"),
		cancelled:    counter("belay_cancels_total", "Runs that were cancelled.", "kind", "cause"),
		verdicts:     counter("belay_stops_total", "Stops by the verdict that their receipt first became final with.", "cause", "verdict"),
		final:        histogram("belay_stop_final_seconds", "Time from a Stop until its verdict was final.", finalBuckets, "verdict"),
		steps:        counter("belay_stop_steps_total", "Steps of stopping; result is error when the step failed.", "step", "result"),
		evidence:     counter("belay_stop_evidence_total", "Evidence that was seen about stopped runs.", "evidence", "scope"),
		escalations:  one("belay_escalations_total", "Second Stops by persons."),
		late:         one("belay_late_results_total", "Answers that came after the caller of a stopped run was settled; none was delivered."),
		lateEvidence: counter("belay_late_evidence_total", "Evidence that came after a receipt was final, by the verdict it left.", "verdict"),
		alive:        one("belay_stops_with_survivors_total", "Stops that ended with processes of the work still alive."),
		survivors:    one("belay_survivors_total", "Processes that were alive at the end of a Stop."),
		missed:       one("belay_events_missed_total", "Events that came too fast to be counted one by one."),
		resyncs:      one("belay_event_resyncs_total", "Times the runs in flight were counted anew."),
		stones:       counter("belay_tombstone_hits_total", "Calls that a Stop had overtaken and that were not started.", "door"),
		restarts:     counter("belay_forced_restarts_total", "Server processes that were restarted because a call had to be stopped by force.", "server"),
		refused:      counter("belay_refused_total", "Requests that were refused.", "surface", "class"),
	}
}

// begin shows what people are alerted of from the start, at zero: a counter that
// appears with its first event has risen by nothing, as far as Prometheus can see,
// and the first Stop that failed would call nobody.
func (c *counters) begin(w *words) {
	for _, verdict := range w.verdicts.names[1:] { // less "other"
		for _, cause := range w.causes.names[1:] {
			c.verdicts.WithLabelValues(cause, verdict)
		}
		c.lateEvidence.WithLabelValues(verdict)
	}
	c.stones.WithLabelValues(string(DoorCaller))
	c.stones.WithLabelValues(string(DoorREST))
}
