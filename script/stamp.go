package script

import (
	"fmt"
	"hash/maphash"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// stamp is how a project's files looked: names, sizes and times, not what is in
// them.
type stamp struct {
	sum uint64
	// fresh says that a file had been written so shortly before that a second change
	// may have left the same time behind.
	fresh bool
}

// freshFor is more than the ticks by which file systems count.
const freshFor = 100 * time.Millisecond

// maxStamped bounds what is looked at of one project.
const maxStamped = 4096

var stampSeed = maphash.MakeSeed()

// stampOf looks at the files of a project.
func stampOf(dir string) stamp {
	began := time.Now()
	var s stamp
	var h maphash.Hash
	h.SetSeed(stampSeed)
	seen := 0
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			fmt.Fprintf(&h, "%s\x00gone\x00", path)
			return nil //nolint:nilerr // as below
		}
		if e.IsDir() {
			if path != dir && skipped(e.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if seen++; seen > maxStamped {
			return filepath.SkipAll
		}
		info, err := os.Stat(path) // of what a link leads to
		if err != nil {
			fmt.Fprintf(&h, "%s\x00gone\x00", path)
			return nil //nolint:nilerr // what cannot be read is a state like any other
		}
		fmt.Fprintf(&h, "%s\x00%d %d %o\x00", path, info.Size(), info.ModTime().UnixNano(), info.Mode())
		s.fresh = s.fresh || began.Sub(info.ModTime()) < freshFor
		return nil
	})
	s.sum = h.Sum64()
	return s
}

// skipped are folders that other programs keep in a project and change all the
// time. What a script imports from there all the same is read once.
func skipped(name string) bool { return strings.HasPrefix(name, ".") || name == "node_modules" }
