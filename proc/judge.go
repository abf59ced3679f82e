package proc

// view is the process table at one moment (not an atomic one: it is read pid
// by pid, which is why whoever acts on it looks again afterwards).
type view struct {
	procs []Process
	at    map[int]int // pid -> index in procs
}

func newView(procs []Process) *view {
	v := &view{procs: procs, at: make(map[int]int, len(procs))}
	for i := range procs {
		v.at[procs[i].PID] = i
	}
	return v
}

// find returns the process only if it is the same one, not a later user of
// its pid.
func (v *view) find(id ID) (Process, bool) {
	i, ok := v.at[id.PID]
	if !ok || v.procs[i].Start != id.Born {
		return Process{}, false
	}
	return v.procs[i], true
}

// below returns the set of all descendants of the roots, roots excluded.
// Zombies are part of it: they are dead, but their table entry connects.
func (v *view) below(roots ...int) map[int]bool {
	children := make(map[int][]int)
	for i := range v.procs {
		p := &v.procs[i]
		children[p.PPID] = append(children[p.PPID], p.PID)
	}
	found := make(map[int]bool)
	queue := append([]int(nil), roots...)
	for len(queue) > 0 {
		pid := queue[0]
		queue = queue[1:]
		for _, c := range children[pid] {
			if !found[c] && c != pid {
				found[c] = true
				queue = append(queue, c)
			}
		}
	}
	for _, r := range roots {
		delete(found, r)
	}
	return found
}

// pick returns the live processes of a pid set in table order.
func (v *view) pick(pids map[int]bool) []Process {
	var out []Process
	for i := range v.procs {
		if p := v.procs[i]; pids[p.PID] && p.live() {
			out = append(out, p)
		}
	}
	return out
}

// spareAll marks the spared among members (sets Process.Spare): those for
// which why gives a reason, then the descendants of the spared, then the
// sessions that a spared process leads. The leader is never marked.
func spareAll(v *view, members []Process, leader ID, why func(*Process) string) { //nolint:unparam // v is what a rule would look at
	spared := make(map[int]string)
	for i := range members {
		p := &members[i]
		if p.ID() == leader {
			continue
		}
		if p.Spare = why(p); p.Spare != "" {
			spared[p.PID] = p.Spare
		}
	}
	if len(spared) == 0 {
		return
	}
	// A reason spreads along both relations until nothing changes; a tree is
	// never deeper than its size.
	for changed := true; changed; {
		changed = false
		for i := range members {
			p := &members[i]
			if p.Spare != "" || p.ID() == leader {
				continue
			}
			reason, ok := spared[p.PPID]
			if !ok {
				reason, ok = spared[p.SID]
			}
			if ok {
				p.Spare, changed = reason, true
				spared[p.PID] = reason
			}
		}
	}
}

// split applies a selection to members that spareAll has marked.
func split(v *view, members []Process, leader ID, sel Selection) (means, spared []Process) {
	spareAll(v, members, leader, func(p *Process) string {
		if p.Spare != "" {
			return p.Spare
		}
		if sel.spares(p.Start) {
			return WhyEarlier
		}
		return ""
	})
	var picked map[ID]bool
	if sel.Pick != nil {
		picked = sel.Pick(members)
	}
	for _, p := range members {
		switch {
		case sel.Pick != nil && (!picked[p.ID()] || p.ID() == leader):
		case p.Spare != "":
			spared = append(spared, p)
		case sel.means(p.Start, p.ID() == leader):
			means = append(means, p)
		}
	}
	return means, spared
}
