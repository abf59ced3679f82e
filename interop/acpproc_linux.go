package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// marked lists the processes of this machine in whose command line or
// environment mark occurs, zombies left out: an agent hands its HOME down to all
// that it starts, whatever else it takes away. It cannot see what another user
// owns, or what cleared its environment. They come in the order of their pids.
func marked(mark string) []acpProcess {
	var list []acpProcess
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is good
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		argv, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || len(argv) == 0 { // gone, or a zombie
			continue
		}
		environ, _ := os.ReadFile(filepath.Join(dir, "environ")) // of a foreign process: none
		if !bytes.Contains(argv, []byte(mark)) && !bytes.Contains(environ, []byte(mark)) {
			continue
		}
		command := strings.TrimSpace(strings.ReplaceAll(string(argv), "\x00", " "))
		list = append(list, acpProcess{pid, command})
	}
	slices.SortFunc(list, func(a, b acpProcess) int { return a.pid - b.pid })
	return list
}

// acpHere says whether the agents' rows can be measured on this system.
const acpHere = true
