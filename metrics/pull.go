package metrics

import (
	"maps"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
)

// pulled gives what is asked for when somebody looks.
type pulled struct{ m *Metrics }

var inFlight = prometheus.NewDesc("belay_runs_in_flight", "Runs for which caller or work waits.", []string{"kind", "work"}, nil)

// Describe implements [prometheus.Collector].
func (p *pulled) Describe(ch chan<- *prometheus.Desc) {
	ch <- inFlight
	for _, g := range p.groups() {
		for i := range g {
			ch <- g[i].desc
		}
	}
}

// Collect implements [prometheus.Collector].
func (p *pulled) Collect(ch chan<- prometheus.Metric) {
	for c, n := range p.m.flight() {
		w := &p.m.book.words
		ch <- prometheus.MustNewConstMetric(inFlight, prometheus.GaugeValue, float64(n), w.kinds.name(c.kind), w.works.name(c.work))
	}
	for _, g := range p.groups() {
		for i := range g {
			ch <- prometheus.MustNewConstMetric(g[i].desc, g[i].kind, g[i].value)
		}
	}
}

// flight is how many runs are in flight. A state that once had a run stays, with
// a zero, so that a graph of it does not end.
func (m *Metrics) flight() map[cell]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.book.flight)
}

// sample is one value without labels.
type sample struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value float64
}

// groups asks every source that there is.
func (p *pulled) groups() [][]sample {
	o := &p.m.opts
	var all [][]sample
	if o.Sessions != nil {
		all = append(all, []sample{gauge("belay_sessions", "Sessions with callers that are open.", float64(o.Sessions()))})
	}
	if o.Latched != nil {
		all = append(all, []sample{gauge("belay_latch_engaged", "1 while the stop-all latch refuses new calls.", bit(o.Latched()))})
	}
	if o.Ledger != nil {
		all = append(all, o.Ledger().samples())
	}
	if o.Traces != nil {
		all = append(all, o.Traces().samples())
	}
	return all
}

func (s LedgerStats) samples() []sample {
	last := 0.0
	if !s.LastSync.IsZero() {
		last = float64(s.LastSync.UnixNano()) / 1e9
	}
	return []sample{
		count("belay_ledger_records_written_total", "Records that were committed.", s.Written),
		count("belay_ledger_batches_total", "Transactions that were committed.", s.Batches),
		count("belay_ledger_batches_failed_total", "Transactions that could not be committed.", s.Failed),
		count("belay_ledger_records_dropped_total", "Records that were dropped: the queue was full or the file damaged.", s.Dropped),
		count("belay_ledger_records_refused_total", "Records that the file refused.", s.Refused),
		count("belay_ledger_events_missed_total", "Events that the ledger did not get in time.", s.Missed),
		count("belay_ledger_resyncs_total", "Times the ledger asked for what it had missed.", s.Resyncs),
		count("belay_ledger_runs_lost_total", "Runs whose end nobody saw.", s.Lost),
		count("belay_ledger_runs_trimmed_total", "Runs that retention deleted.", s.Trimmed),
		gauge("belay_ledger_queue", "Records that wait to be written.", float64(s.Queued)),
		gauge("belay_ledger_bytes", "Size of the ledger's file and its log.", float64(s.Bytes)),
		gauge("belay_ledger_trouble", "1 while writing fails.", bit(s.Trouble)),
		gauge("belay_ledger_last_sync_timestamp_seconds", "When the ledger was last known to be on disk; 0: not yet.", last),
	}
}

func (s TraceStats) samples() []sample {
	return []sample{
		count("belay_trace_spans_exported_total", "Spans that the receiver took.", s.Exported),
		count("belay_trace_spans_dropped_total", "Spans that were given up.", s.Dropped),
		count("belay_trace_events_missed_total", "Events of runs that the tracer did not get in time.", s.Missed),
		gauge("belay_trace_queue", "Spans that wait.", float64(s.Queued)),
	}
}

func count(name, help string, v uint64) sample {
	return sample{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, float64(v)}
}

func gauge(name, help string, v float64) sample {
	return sample{prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, v}
}

func bit(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

// buildInfo is a constant 1 that says what runs.
func buildInfo(version string) prometheus.Collector {
	if version == "" {
		version = "unknown"
	}
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "belay_build_info", Help: "What runs; always 1.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	g.Set(1)
	return g
}
