package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// benchLine is a line of `go test -bench`: name, iterations, then pairs.
var benchLine = regexp.MustCompile(`^Benchmark(\S+?)(-\d+)?\s+\d+\s+(.*)$`)

// inProcess runs the Go benchmarks of package belay and puts every metric they
// report into the table. Their bars are written beside them there, in the unit
// of the metric, as far as DESIGN names one.
func (b *bench) inProcess() error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	count := strconv.Itoa(b.rounds)
	cmd := exec.Command("go", "test", "-run=^$", "-bench=.", "-benchmem", "-count="+count, ".")
	if b.quick {
		cmd.Args = append(cmd.Args, "-benchtime=100ms")
	}
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("go test -bench: %w\n%s", err, bytes.TrimSpace(out))
	}
	values, order := parseBench(string(out))
	if len(order) == 0 {
		return fmt.Errorf("package belay has no benchmarks")
	}
	for _, key := range order {
		name, unit, _ := strings.Cut(key, "\t")
		r := b.report.compare("in process: "+name, unit, map[string][]float64{"belay": values[key]})
		for _, bar := range inProcessBars {
			if strings.Contains(strings.ToLower(name), bar.name) && unit == bar.unit {
				r.bar = "<= " + strconv.FormatFloat(bar.max, 'f', -1, 64)
				r.judge(r.value("belay") <= bar.max)
			}
		}
	}
	return nil
}

// inProcessBars are the bars of DESIGN section 9, by a part of the benchmark's
// name in lower case, and its unit.
var inProcessBars = []struct {
	name, unit string
	max        float64
}{
	{"registerfinish", "ns/op", 1000},
	{"registerfinish", "allocs/op", 3},
	{"millioninflight", "B/run", 1024},
	{"cancel100k", "ns/last-told", 100e6},
}

func parseBench(out string) (map[string][]float64, []string) {
	values := map[string][]float64{}
	var order []string
	for line := range strings.Lines(out) {
		m := benchLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		fields := strings.Fields(m[3])
		for i := 0; i+1 < len(fields); i += 2 {
			v, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				continue
			}
			key := m[1] + "\t" + fields[i+1]
			if values[key] == nil {
				order = append(order, key)
			}
			values[key] = append(values[key], v)
		}
	}
	return values, order
}
