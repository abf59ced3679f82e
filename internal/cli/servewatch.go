package cli

import (
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// fileWatch says when files have changed. It watches their folders, because
// editors replace a file by another one of its name.
type fileWatch struct {
	changed chan struct{} // a value when a file has changed and been quiet for settleTime

	in   *fsnotify.Watcher // nil: nothing can be watched; SIGHUP still works
	done chan struct{}     // closed when the goroutine has ended
	log  *slog.Logger

	mu   sync.Mutex
	list map[string]bool // absolute paths
	dirs map[string]bool
}

// settleTime is how long a file has to be left alone before it is read: an
// editor writes in several steps.
const settleTime = 150 * time.Millisecond

// watchFiles watches files until close. It never fails: what cannot be watched
// is said in the log.
func watchFiles(list []string, log *slog.Logger) *fileWatch {
	w := &fileWatch{changed: make(chan struct{}, 1), done: make(chan struct{}), log: log, dirs: map[string]bool{}}
	if len(list) == 0 {
		close(w.done)
		return w
	}
	in, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("changed files are not noticed; use SIGHUP", "error", err)
		close(w.done)
		return w
	}
	w.in = in
	w.files(list)
	go w.loop()
	return w
}

// files sets what is watched.
func (w *fileWatch) files(list []string) {
	if w.in == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = make(map[string]bool, len(list))
	for _, name := range list {
		w.list[name] = true
		if target, err := filepath.EvalSymlinks(name); err == nil {
			w.list[target] = true // a link's target, which may lie elsewhere
		}
	}
	for name := range w.list {
		dir := filepath.Dir(name)
		if w.dirs[dir] {
			continue
		}
		if err := w.in.Add(dir); err != nil {
			w.log.Warn("changes of a file are not noticed; use SIGHUP", "file", name, "error", err)
			continue
		}
		w.dirs[dir] = true
	}
}

func (w *fileWatch) loop() {
	defer close(w.done)
	settle := time.NewTimer(time.Hour)
	settle.Stop()
	for {
		select {
		case e, ok := <-w.in.Events:
			if !ok {
				return
			}
			if w.concerns(e) {
				settle.Reset(settleTime)
			}
		case err, ok := <-w.in.Errors:
			if !ok {
				return
			}
			w.log.Warn("a change of a file may not have been noticed", "error", err)
		case <-settle.C:
			select {
			case w.changed <- struct{}{}:
			default: // one is waiting already
			}
		}
	}
}

// concerns reports whether an event is a change of a watched file: written, put
// there, or a link that leads elsewhere now. One that was only taken away will
// come back, or the next SIGHUP says that it is missing.
func (w *fileWatch) concerns(e fsnotify.Event) bool {
	if !e.Has(fsnotify.Write) && !e.Has(fsnotify.Create) {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.list[e.Name] {
		return true
	}
	for name := range w.list { // a folder or link on the way to the file was replaced
		if info, err := os.Lstat(name); err == nil && info.Mode()&os.ModeSymlink != 0 && filepath.Dir(name) == filepath.Dir(e.Name) {
			return true
		}
	}
	return false
}

func (w *fileWatch) close() {
	if w.in != nil {
		_ = w.in.Close()
	}
	<-w.done
}
