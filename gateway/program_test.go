package gateway

import "os/exec"

// copyProgram is done by another process: a descriptor open for writing that a
// fork elsewhere in this test inherits would make the copy "text file busy".
func copyProgram(from, to string) error {
	return exec.Command("sh", "-c", `cat <"$0" >"$1" && chmod +x "$1"`, from, to).Run()
}
