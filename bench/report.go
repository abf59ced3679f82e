package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report is the table: one row for each figure.
type report struct {
	title string
	rows  []*row
}

// row is one figure, for each way its values of all rounds.
type row struct {
	name, unit string
	values     map[string][]float64
	bar, note  string
	verdict    string // "ok", "over", "" = no bar
	err        error
}

func (r *report) head(b *bench) {
	r.title = fmt.Sprintf("%s/%s, %d cores, %s, %d rounds, medians", runtime.GOOS, runtime.GOARCH,
		runtime.NumCPU(), runtime.Version(), b.rounds)
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		r.title += ", load average at the start " + strings.Fields(string(load))[0]
	}
	if b.quick {
		r.title += " (quick: a look, not a measurement)"
	}
}

// compare adds a row.
func (r *report) compare(name, unit string, values map[string][]float64) *row {
	one := &row{name: name, unit: unit, values: values}
	r.rows = append(r.rows, one)
	return one
}

func (r *report) failed(name string, err error) {
	r.rows = append(r.rows, &row{name: name, err: err})
}

func (r *row) has(way string) bool { return len(r.values[way]) > 0 }

// value is the median over the rounds, NaN if this way was not measured.
func (r *row) value(way string) float64 { return median(r.values[way]) }

// judge writes down whether the bar is met; rows without Belay stay open.
func (r *row) judge(ok bool) {
	switch {
	case !r.has("belay"):
	case ok:
		r.verdict = "ok"
	default:
		r.verdict = "over"
	}
}

// gatewayNames are the ways through other people's gateways.
var gatewayNames = []string{supergateway, mcpProxy, mcpRemote}

// plain is Belay with everything off that can be off.
const plain = "plain belay"

var wayNames = append([]string{"direct", "relay", plain, "belay"}, gatewayNames...)

// ways are the columns: other ways than the first stand there only if some row
// has them.
func (r *report) ways() []string {
	return slices.DeleteFunc(slices.Clone(wayNames), func(way string) bool {
		return way != "direct" && way != "belay" && !slices.ContainsFunc(r.rows, func(one *row) bool { return one.has(way) })
	})
}

// say adds to the note.
func (r *row) say(format string, args ...any) {
	r.note = strings.TrimPrefix(r.note+"; "+fmt.Sprintf(format, args...), "; ")
}

// ahead reports whether a gateway of other people is better than Belay; sign is
// 1 where more is better and -1 where less is.
func (r *row) ahead(sign float64) bool {
	for _, name := range gatewayNames {
		if r.has(name) && sign*r.value(name) > sign*r.value("belay") {
			r.say("%s is ahead", name)
			return true
		}
	}
	return false
}

func (r *row) cells(ways []string) []string {
	if r.err != nil {
		cells := make([]string, len(columns(ways)))
		cells[0], cells[len(cells)-2], cells[len(cells)-1] = r.name, "failed", strings.ReplaceAll(r.err.Error(), "\n", " ")
		return cells
	}
	cells := []string{r.name, r.unit}
	for _, way := range ways {
		cells = append(cells, figure(r.value(way)))
	}
	return append(cells, r.bar, r.verdict, r.note)
}

// figure prints a value with about three digits.
func figure(v float64) string {
	switch abs := math.Abs(v); {
	case math.IsNaN(v):
		return "-"
	case abs >= 100:
		return fmt.Sprintf("%.0f", v)
	case abs >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

func columns(ways []string) []string {
	return slices.Concat([]string{"figure", "unit"}, ways, []string{"bar", "", "note"})
}

func (r *report) text() string {
	var out strings.Builder
	fmt.Fprintln(&out, r.title)
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	ways := r.ways()
	fmt.Fprintln(w, strings.Join(columns(ways), "\t"))
	for _, one := range r.rows {
		fmt.Fprintln(w, strings.Join(one.cells(ways), "\t"))
	}
	_ = w.Flush() // into memory
	return out.String()
}

func (r *report) markdown() string {
	var out strings.Builder
	ways := r.ways()
	head := columns(ways)
	fmt.Fprintf(&out, "%s\n\n| %s |\n|%s\n", r.title, strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, one := range r.rows {
		fmt.Fprintf(&out, "| %s |\n", strings.Join(one.cells(ways), " | "))
	}
	return out.String()
}

func (r *report) printJSON(w io.Writer) int {
	type jsonRow struct {
		Name    string               `json:"name"`
		Unit    string               `json:"unit,omitempty"`
		Median  map[string]float64   `json:"median,omitempty"`
		Rounds  map[string][]float64 `json:"rounds,omitempty"`
		Bar     string               `json:"bar,omitempty"`
		Verdict string               `json:"verdict,omitempty"`
		Note    string               `json:"note,omitempty"`
		Error   string               `json:"error,omitempty"`
	}
	var rows []jsonRow
	for _, one := range r.rows {
		j := jsonRow{Name: one.name, Unit: one.unit, Rounds: one.values, Bar: one.bar, Verdict: one.verdict, Note: one.note}
		if one.err != nil {
			j.Error = one.err.Error()
		}
		for _, way := range wayNames {
			if one.has(way) {
				if j.Median == nil {
					j.Median = map[string]float64{}
				}
				j.Median[way] = one.value(way)
			}
		}
		rows = append(rows, j)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if enc.Encode(map[string]any{"title": r.title, "rows": rows}) != nil {
		return 1
	}
	return 0
}

func median(values []float64) float64 { return quantile(values, 0.5) }

// quantile interpolates nothing: it returns a value that was measured.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func micro(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func milli(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
