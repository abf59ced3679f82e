package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/belayhq/belay/internal/faketool"
)

// clockTick is the unit of processor times in /proc: 100 per second on every
// Linux that Go runs on.
const clockTick = 10 * time.Millisecond

var errNoProc = errors.New("needs /proc of Linux")

// middle returns the processes between the client and the fake server: the
// relay, or Belay with its guardian. The server's own tree is left out.
func middle(root int) ([]int, error) {
	if root == 0 {
		return nil, nil
	}
	parent := map[int]int{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		return nil, errNoProc
	}
	for _, path := range stats {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if fields := statFields(pid); fields != nil {
			parent[pid], _ = strconv.Atoi(fields[1])
		}
	}
	var list []int
	for pid := range parent {
		for up := pid; up > 1; up = parent[up] {
			if up == root && !isFake(pid) {
				list = append(list, pid)
			}
		}
	}
	return list, nil
}

// isFake reports whether a process is a server or helper of ours. The relays are
// ours too, but in the middle.
func isFake(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return true // gone
	}
	args := strings.Split(string(raw), "\x00")
	return len(args) > 2 && (args[1] == faketool.Marker && args[2] != "relay" || args[1] == roleMarker && args[2] != roleProxy)
}

// statFields returns the fields of /proc/pid/stat after the command name:
// state, parent and so on.
func statFields(pid int) []string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
}

// processorTime is user plus system time of the processes so far.
func processorTime(pids []int) time.Duration {
	var ticks int
	for _, pid := range pids {
		if f := statFields(pid); len(f) > 12 {
			user, _ := strconv.Atoi(f[11])
			system, _ := strconv.Atoi(f[12])
			ticks += user + system
		}
	}
	return time.Duration(ticks) * clockTick
}

// pss is the proportional set size of the processes in bytes.
func pss(pids []int) (float64, error) {
	return sum(pids, "smaps_rollup", "Pss:")
}

// rss is the resident set size of the processes in bytes.
func rss(pids []int) (float64, error) {
	return sum(pids, "status", "VmRSS:")
}

// sum adds a "Name: N kB" line of one file over the processes.
func sum(pids []int, file, name string) (float64, error) {
	total := 0.0
	for _, pid := range pids {
		n, err := number(fmt.Sprintf("/proc/%d/%s", pid, file), name)
		if err != nil {
			return 0, err
		}
		total += n * 1024
	}
	return total, nil
}

func number(path, name string) (float64, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strconv.ParseFloat(strings.Fields(rest)[0], 64)
		}
	}
	return 0, fmt.Errorf("%s has no line %s", path, name)
}

// wakeUps counts how often the threads of the processes went to sleep so far:
// an idle process that wakes shows here.
func wakeUps(pids []int) (float64, error) {
	total := 0.0
	for _, pid := range pids {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		if err != nil || len(threads) == 0 {
			return 0, errNoProc
		}
		for _, path := range threads {
			n, err := number(path, "voluntary_ctxt_switches:")
			if err != nil {
				return 0, err
			}
			total += n
		}
	}
	return total, nil
}
