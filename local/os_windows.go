package local

import (
	"io/fs"
	"os"
)

func tempDir() string { return os.TempDir() }

// ownerOf: the user's own profile directory is private by its access list,
// which is not looked at.
func ownerOf(fs.FileInfo) (uid int, known bool) { return 0, false }

func alive(pid int) bool {
	p, err := os.FindProcess(pid) // opens the process, so it fails when there is none
	if err != nil {
		return false
	}
	_ = p.Release()
	return true
}
