package proc

import (
	"os"
	"strconv"
	"strings"
)

// executable is the path of the program, also when its file was replaced or
// deleted meanwhile.
func executable(pid int) string {
	path, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(path, " (deleted)")
}
