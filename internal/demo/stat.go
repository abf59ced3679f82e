package demo

import (
	"os"
	"strconv"
	"strings"
)

func itoa(n int) string { return strconv.Itoa(n) }

// readStat reads pid and parent from a /proc/PID/stat file.
func readStat(path string) (pid, ppid int, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, err
	}
	text := string(raw)
	end := strings.LastIndexByte(text, ')') // the name may hold anything, brackets too
	fields := strings.Fields(text[end+1:])
	if end < 0 || len(fields) < 2 {
		return 0, 0, os.ErrInvalid
	}
	pid, err = strconv.Atoi(text[:strings.IndexByte(text, ' ')])
	if err == nil {
		ppid, err = strconv.Atoi(fields[1])
	}
	return pid, ppid, err
}
