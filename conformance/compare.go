package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// difference is one thing that is not the same through Belay.
type difference struct {
	scenario string
	check    string // id and name; empty for what concerns more than a check
	text     string
}

func (d difference) String() string {
	return strings.Join(slices.DeleteFunc([]string{d.scenario, d.check, d.text}, func(s string) bool { return s == "" }), ": ")
}

// improvement is a check in which Belay is known to do more for callers than
// the peer does directly.
type improvement struct {
	scenario, check string
	from, to        string // statuses
	why             string
}

// improvements are the only differences that are meant. What Belay does better
// has to stay so: the plain status of the direct side is a difference then.
var improvements = []improvement{
	{
		"server-sse-polling", "server-sse-priming-event (ServerSendsPrimingEvent)", warning, success,
		"Belay begins the streams of 2025-11-25 with an event id to come back with, as the specification recommends; the Go server does not",
	},
	{
		"server-sse-polling", "server-sse-retry-field (ServerSendsRetryField)", warning, success,
		"Belay says after which time to come back; the reference server does not",
	},
	{
		"dns-rebinding-protection", "localhost-host-rebinding-rejected (DNSRebindingRejected)", failure, success,
		"Belay refuses foreign Host and Origin headers; the reference server takes them",
	},
	{
		"server-session-lifecycle", "server-session-terminated-returns-404 (SessionTerminatedReturns404)", failure, success,
		"Belay answers 404 to the id of an ended session; the reference server answers 400",
	},
}

// expected is what has to be seen through Belay, given the direct side.
func expected(scenario, check, direct string) (string, *improvement) {
	for i := range improvements {
		if b := &improvements[i]; b.scenario == scenario && b.check == check && b.from == direct {
			return b.to, b
		}
	}
	return direct, nil
}

// compare lists what differs, in the order of scenarios and checks, and the
// improvements that were seen.
func compare(direct, via outcome) (list []difference, better []*improvement) {
	all := maps.Clone(direct.scenarios)
	maps.Copy(all, via.scenarios)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		d, inDirect := direct.scenarios[name]
		v, inVia := via.scenarios[name]
		switch {
		case !inVia:
			list = append(list, difference{scenario: name, text: "did not run through Belay"})
		case !inDirect:
			list = append(list, difference{scenario: name, text: "did not run directly"})
		default:
			differ, more := compareChecks(name, d, v)
			list, better = append(list, differ...), append(better, more...)
		}
	}
	if direct.exit != via.exit {
		list = append(list, difference{text: fmt.Sprintf("exit code %d directly, %d through Belay", direct.exit, via.exit)})
	}
	return list, better
}

// compareChecks compares how often each check came to which status.
func compareChecks(scenario string, direct, via []check) (list []difference, better []*improvement) {
	d, v := byCheck(direct), byCheck(via)
	all := maps.Clone(d)
	maps.Copy(all, v)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		was, is := statuses(d[key]), statuses(v[key])
		want, more := expected(scenario, key, was)
		switch {
		case is != want:
			list = append(list, difference{scenario, key, fmt.Sprintf("%s directly, %s through Belay%s", was, is, said(d[key], v[key]))})
		case more != nil:
			better = append(better, more)
		}
	}
	return list, better
}

// byCheck sorts checks by id and name, without the suite's log entries.
func byCheck(checks []check) map[string][]check {
	m := map[string][]check{}
	for _, c := range checks {
		if c.Status != info {
			key := c.ID + " (" + c.Name + ")"
			m[key] = append(m[key], c)
		}
	}
	return m
}

func statuses(checks []check) string {
	if len(checks) == 0 {
		return "not checked"
	}
	list := make([]string, 0, len(checks))
	for _, c := range checks {
		list = append(list, c.Status)
	}
	slices.Sort(list)
	return strings.Join(list, "+")
}

// said is what the suite complains about, on either side.
func said(direct, via []check) (text string) {
	for _, side := range []struct {
		name   string
		checks []check
	}{{"directly", direct}, {"through Belay", via}} {
		for _, c := range side.checks {
			if c.Text != "" {
				text += fmt.Sprintf("; %s: %.400s", side.name, c.Text)
			}
		}
	}
	return text
}
