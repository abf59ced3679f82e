package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/admin"
	"github.com/belayhq/belay/internal/wholefile"
	"github.com/belayhq/belay/metrics"
)

// gate keeps calls out: while the latch is engaged, and where a cancel came
// before its call.
type gate struct{ s *Server }

// Admit implements [gateway.Gate].
func (g gate) Admit(string) error {
	err := g.s.latch.Refuses()
	if err != nil {
		g.s.metrics.Refused(metrics.SurfaceMCP, metrics.Latched)
	}
	return err
}

// Early implements [gateway.Gate].
func (g gate) Early(owner, id string) (belay.Cancellation, bool) {
	c, ok := g.s.early.Take(owner, id)
	if ok {
		g.s.metrics.TombstoneHit(metrics.DoorREST)
	}
	return c, ok
}

// maxLatchFile is more than any latch file has.
const maxLatchFile = 16 << 10

// restoreLatch reads the latch as an earlier process left it.
func (s *Server) restoreLatch() error {
	file := s.o.LatchFile
	if file == "" {
		return nil
	}
	s.latch.Keep = func(state admin.LatchState) error { return writeLatch(file, state) }
	text, err := readLatch(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var state admin.LatchState
	if err == nil {
		err = json.Unmarshal(text, &state)
	}
	if err != nil {
		return fmt.Errorf("the latch's file %s cannot be read, so it may be engaged: %w; remove the file to lift it", file, err)
	}
	s.latch.Restore(state)
	if state.Engaged {
		s.log.Warn("the latch is engaged: no call is let in until it is lifted", "by", state.By, "since", state.At, "reason", state.Reason)
	}
	return nil
}

// readLatch reads a file that nobody else could have written. What is no file
// is not opened: reading it might never end.
func readLatch(file string) ([]byte, error) {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("it is no regular file (%s)", info.Mode().Type())
	case info.Size() > maxLatchFile:
		return nil, fmt.Errorf("it has %d bytes", info.Size())
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o022 != 0: // there the bits mean nothing
		return nil, fmt.Errorf("others can write to it (%s), and so lift the latch; chmod go-w it if you trust what it says", info.Mode().Perm())
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxLatchFile))
}

// writeLatch returns when a crash does not bring the old state back.
func writeLatch(file string, state admin.LatchState) error {
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return wholefile.Write(file, append(text, '\n'))
}

// broadcaster tells connected MCP sessions of a cancel (ORC-44).
type broadcaster struct{ s *Server }

// Broadcast implements [admin.Broadcaster].
func (b broadcaster) Broadcast(ctx context.Context, n admin.Notice) error {
	owner := n.Owner
	switch {
	case n.Audience == admin.ToAll:
		owner = ""
	case owner == "":
		return nil // a run of nobody: whose sessions would these be?
	}
	_, err := b.s.hub.Tell(ctx, owner, n.RequestID, n.Frame)
	return err
}
