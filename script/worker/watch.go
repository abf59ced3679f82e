package worker

import (
	"log/slog"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settleTime is how long files have to be left alone before they are read: an editor
// writes in several steps.
const settleTime = 150 * time.Millisecond

// watch has the client told of changes from here on, which is once it has asked for
// the list. Where nothing can be watched changes are seen when somebody asks.
func (s *shop) watch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watched || s.closed {
		return
	}
	s.watched = true
	in, err := fsnotify.NewWatcher()
	if err != nil {
		s.log().Warn("changed scripts are noticed only when they are called or listed", "error", err)
		return
	}
	s.tasks.Go(func() { s.follow(in) })
}

func (s *shop) log() *slog.Logger {
	if s.w.o.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.w.o.Log
}

// settleLimit is how long files that are never left alone are waited for.
const settleLimit = 2 * time.Second

// follow reads the collection again after each change.
func (s *shop) follow(in *fsnotify.Watcher) {
	defer in.Close()
	known := s.cover(in, nil)
	s.refresh() // what changed while nobody was watching yet
	settle := time.NewTimer(time.Hour)
	settle.Stop()
	var since time.Time // the first change that has not been looked at
	stir := func() {
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) < settleLimit {
			settle.Reset(settleTime)
		}
	}
	for {
		select {
		case <-s.end:
			return
		case e := <-in.Events:
			if e.Op != fsnotify.Chmod {
				stir()
			}
		case err := <-in.Errors:
			s.log().Warn("a change of a script may not have been noticed", "error", err)
			stir()
		case <-settle.C:
			since = time.Time{}
			known = s.cover(in, known) // before it is read: what changes behind it is seen
			s.refresh()
		}
	}
}

// cover watches the folders that there are now, and no others.
func (s *shop) cover(in *fsnotify.Watcher, known map[string]bool) map[string]bool {
	now := map[string]bool{}
	for _, dir := range s.w.o.Collection.Watched() {
		now[dir] = true
		// Again if it is known: another folder may have taken its name.
		if err := in.Add(dir); err != nil && !known[dir] {
			s.log().Warn("changes in a folder of scripts are noticed only when they are called or listed", "folder", dir, "error", err)
		}
	}
	for dir := range known {
		if !now[dir] {
			_ = in.Remove(dir) // it may be gone, and its watch with it
		}
	}
	return now
}
