//go:build !unix

package adopt

import (
	"io/fs"
	"os"
)

// A new file inherits what its folder says; there is nothing to compare here.
func ownership(fs.FileInfo) string { return "" }

func keepOwner(*os.File, fs.FileInfo) error { return nil }
