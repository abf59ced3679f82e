package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// acpSelected are the agents to run: those named, or in CI those that are marked
// for it, or all.
func acpSelected(names string) ([]acpAgent, error) {
	if names == "" {
		list := slices.Clone(acpAgents)
		if os.Getenv("CI") != "" {
			list = slices.DeleteFunc(list, func(a acpAgent) bool { return !a.inCI })
		}
		return list, nil
	}
	var list []acpAgent
	for name := range strings.SplitSeq(names, ",") {
		at := slices.IndexFunc(acpAgents, func(a acpAgent) bool { return a.key == name })
		if at < 0 {
			return nil, fmt.Errorf("unknown agent %q; want %s", name, strings.Join(acpNames(), ", "))
		}
		list = append(list, acpAgents[at])
	}
	return list, nil
}

func acpNames() []string {
	var names []string
	for _, a := range acpAgents {
		names = append(names, a.key)
	}
	return names
}

// overACP runs the rows of the agents: each bare first, then under Belay.
func (h *harness) overACP(agents []acpAgent, only string) {
	if !acpHere {
		fmt.Fprintln(os.Stderr, "\n!!! interop: the agents' rows are not run: they are measured on Linux only")
		return
	}
	h.agents = h.peers.installACP(h.cache, agents)
	rows := newBatch(h.jobs / 2)
	defer rows.addTo(&h.acp)
	for _, a := range h.agents {
		for _, c := range acpCells {
			for _, version := range []int{1, 2} {
				if version == 2 && (!a.v2 || !c.v2) {
					continue
				}
				h.acpPair(rows, a, c, version, only)
			}
		}
	}
}

// acpPair runs one cell twice, without and with Belay, one after the other.
func (h *harness) acpPair(rows *batch, a acpAgent, c acpCell, version int, only string) {
	name := fmt.Sprintf("%s v%d / %s", a.key, version, c.name)
	if !strings.Contains(name, only) {
		return
	}
	bare := &acpRow{agent: a.key, cell: c.name, version: version, end: c.end}
	if !h.under && !c.under {
		rows.do(bare, &bare.problem, name+" (bare)", func() error { return h.withAgent(a, c, bare) })
	}
	if h.belay == "" {
		return
	}
	under := &acpRow{agent: a.key, cell: c.name, version: version, end: c.end, belay: true, bare: bare}
	rows.do(under, &under.problem, name+" (Belay)", func() error { return h.withAgent(a, c, under) })
}

// acpPins are the agents' packages and versions, for the head of the page.
func (h *harness) acpPins() []string {
	var pins []string
	for _, a := range h.agents {
		pins = append(pins, a.pin())
	}
	return pins
}
