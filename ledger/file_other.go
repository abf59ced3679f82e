//go:build !linux && !darwin && !freebsd && !netbsd && !openbsd && !windows

package ledger

import (
	"io/fs"
	"os"
)

const enforced = false

func ownerOf(fs.FileInfo) (int, bool) { return 0, false }

func lockFile(*os.File) error { return nil }
