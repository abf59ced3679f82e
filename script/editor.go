package script

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of what scripts may do with an editor's folder.
const (
	MaxEditorFile    = 4 << 20  // bytes of one file, to read or to write
	MaxEditorEntries = 20_000   // files and folders that a list may have
	MaxEditorWritten = 64 << 20 // bytes that one call may write
	maxEditorQueue   = 20_000   // operations of one call that wait for their turn
	maxEditorEdits   = 1000     // of one operation
	maxEditorPath    = 1024     // bytes of a path
	maxEditorDepth   = 32       // folders that a path goes through
	maxEditorTries   = 20       // for a file that others change meanwhile
)

// Editor is a folder that tools of the kind scriptEditorOnly work on, as their
// ScriptEditorProvider (AT-44, AT-81). Nothing outside of it can be reached: paths
// are relative, and neither ".." nor a link leads out. The folders in which version
// control keeps its own things are as if they were not there, for whoever may write
// them may run programs.
//
// Files are replaced as a whole, by a rename: a worker that is killed leaves the old
// file or the new one. All methods may be called concurrently.
type Editor struct {
	name  string
	root  *os.Root
	write bool

	mu    sync.Mutex      // held while a file is changed
	swept map[string]bool // folders that killed writers' pieces were looked for in
}

// Why the editor refuses; scripts see the message.
var (
	errEditorPath    = errors.New("a path is relative to the project, with / between its parts, and stays inside")
	errEditorRead    = errors.New("the editor's folder may only be read: the configuration does not grant writing")
	errEditorGone    = errors.New("there is no such file")
	errEditorNoText  = errors.New("the file is no text in UTF-8")
	errEditorLarge   = fmt.Errorf("a file has at most %d bytes", MaxEditorFile)
	errEditorKind    = errors.New("it is no regular file")
	errEditorMoved   = errors.New("somebody else changes it all the time")
	errEditorEntries = fmt.Errorf("the editor's folder has more than %d entries: grant a smaller one", MaxEditorEntries)
)

// OpenEditor opens the folder that scripts may see, and with write change. Close it
// when nothing uses it any more.
func OpenEditor(dir string, write bool) (*Editor, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open the editor's folder: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the editor's folder: %w", err)
	}
	return &Editor{name: filepath.Base(dir), root: root, write: write, swept: make(map[string]bool)}, nil
}

// Close lets go of the folder.
func (e *Editor) Close() error { return e.root.Close() }

// unseen are the folders of version control: a hook or a setting in them is a
// program that somebody runs later.
var unseen = []string{".git", ".hg", ".svn", ".jj", "git~1"}

// unlisted are folders that lists leave out, since no author wrote what is in them.
// They can be named.
var unlisted = []string{"node_modules"}

// temporary begins the names of files that are not whole yet. One that is so old is
// left over.
const (
	temporary = ".belay-new-"
	leftAfter = time.Minute
)

// pathIn checks a script's path and returns it in its shortest form. seen is false
// for what is as if it were not there.
func pathIn(name string) (clean string, seen bool, err error) {
	clean = path.Clean(name)
	if name == "" || len(name) > maxEditorPath || !utf8.ValidString(name) || !fs.ValidPath(clean) ||
		strings.ContainsFunc(name, func(r rune) bool { return unicode.IsControl(r) || r == '\\' }) ||
		runtime.GOOS == "windows" && strings.Contains(name, ":") || // another stream of a file
		!filepath.IsLocal(filepath.FromSlash(clean)) || strings.Count(clean, "/") > maxEditorDepth {
		return "", false, fmt.Errorf("%.80q: %w", name, errEditorPath)
	}
	for part := range strings.SplitSeq(clean, "/") {
		if isUnseen(part) {
			return clean, false, nil
		}
	}
	return clean, true, nil
}

// isUnseen compares a name as the most forgiving file systems do: without case,
// without characters that have no width, without what Windows cuts from the end.
func isUnseen(part string) bool {
	part = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, part)
	part, _, _ = strings.Cut(part, ":")
	part = strings.TrimRight(part, ". ")
	return strings.HasPrefix(part, temporary) || slices.ContainsFunc(unseen, func(u string) bool { return strings.EqualFold(u, part) })
}

// exists reports whether there is a file or a folder of this name.
func (e *Editor) exists(name string) bool {
	clean, seen, err := pathIn(name)
	if err != nil || !seen {
		return false
	}
	_, err = e.root.Stat(clean)
	return err == nil
}

// list is every file or every folder, in the order of their names. stopped is asked
// now and then whether anybody still wants to know.
func (e *Editor) list(folders bool, stopped func() error) ([]string, error) {
	found, entries := []string{}, 0
	err := fs.WalkDir(e.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if entries++; entries > MaxEditorEntries {
			return errEditorEntries
		}
		if entries%64 == 0 {
			if err := stopped(); err != nil {
				return err
			}
		}
		switch {
		case name == ".":
			return err // of the folder itself; of one below it is passed over
		case isUnseen(d.Name()), d.IsDir() && slices.Contains(unlisted, d.Name()):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			if folders {
				found = append(found, name)
			}
			if err != nil {
				return fs.SkipDir
			}
			return nil
		case !folders && (d.Type().IsRegular() || d.Type()&fs.ModeSymlink != 0 && e.regular(name)):
			found = append(found, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the editor's folder: %w", err)
	}
	return found, nil
}

// regular reports whether a link leads to a file inside of the folder.
func (e *Editor) regular(name string) bool {
	info, err := e.root.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// read returns a file's text.
func (e *Editor) read(name string) (string, error) {
	clean, seen, err := pathIn(name)
	if err != nil {
		return "", err
	}
	if !seen {
		return "", fmt.Errorf("%s: %w", clean, errEditorGone)
	}
	info, err := e.root.Stat(clean) // before it is opened: to open a pipe may wait for ever
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%s: %w", clean, errEditorGone)
	case err != nil:
		return "", fmt.Errorf("read %s: %w", clean, plain(err))
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s: %w", clean, errEditorKind)
	}
	f, err := e.root.Open(clean)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", clean, plain(err))
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, MaxEditorFile+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read %s: %w", clean, plain(err))
	case len(text) > MaxEditorFile:
		return "", fmt.Errorf("%s: %w", clean, errEditorLarge)
	case !utf8.Valid(text) || slices.Contains(text, 0):
		return "", fmt.Errorf("%s: %w", clean, errEditorNoText)
	}
	return string(text), nil
}

// put replaces a whole file; create says that it need not be there.
func (e *Editor) put(name, text string, create bool) error {
	clean, err := e.writable(name)
	if err != nil {
		return err
	}
	if len(text) > MaxEditorFile {
		return fmt.Errorf("%s: %w", clean, errEditorLarge)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	unlock, err := e.lock()
	if err != nil {
		return err
	}
	defer unlock()
	was, err := e.lookLocked(clean)
	if errors.Is(err, errEditorGone) && create {
		err = nil
		if of := e.root.MkdirAll(path.Dir(clean), 0o755); of != nil {
			err = fmt.Errorf("write %s: %w", clean, plain(of))
		}
	}
	if err != nil {
		return err
	}
	return e.replaceLocked(clean, text, was, false)
}

// edit replaces a file by what change makes of its text. Other programs than workers
// may change the file at the same time: then it is read anew.
func (e *Editor) edit(name string, change func(old string) (string, error)) error {
	clean, err := e.writable(name)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	unlock, err := e.lock()
	if err != nil {
		return err
	}
	defer unlock()
	err = errEditorMoved
	for try := 0; errors.Is(err, errEditorMoved) && try < maxEditorTries; try++ {
		err = e.editLocked(clean, change)
	}
	return err
}

func (e *Editor) editLocked(clean string, change func(old string) (string, error)) error {
	was, err := e.lookLocked(clean)
	if err != nil {
		return err
	}
	old, err := e.read(clean)
	if err != nil {
		return err
	}
	text, err := change(old)
	if err != nil {
		return err
	}
	if len(text) > MaxEditorFile {
		return fmt.Errorf("%s: %w", clean, errEditorLarge)
	}
	return e.replaceLocked(clean, text, was, true)
}

// writable checks the path of a file that is to be written.
func (e *Editor) writable(name string) (string, error) {
	clean, seen, err := pathIn(name)
	switch {
	case err != nil:
		return "", err
	case !e.write:
		return "", errEditorRead
	case !seen || clean == ".":
		return "", fmt.Errorf("%s: %w", clean, errEditorKind)
	}
	return clean, nil
}

// lookLocked is what is in a file's place now: nothing, or a regular file.
func (e *Editor) lookLocked(clean string) (fs.FileInfo, error) {
	switch info, err := e.root.Lstat(clean); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: %w", clean, errEditorGone)
	case err != nil:
		return nil, fmt.Errorf("write %s: %w", clean, plain(err))
	case !info.Mode().IsRegular(): // a link too: the rename would put a file in its place
		return nil, fmt.Errorf("%s: %w", clean, errEditorKind)
	default:
		return info, nil
	}
}

// sweepLocked removes what writers that were killed left in a folder, before the
// first file is written there. What is young may belong to another process.
func (e *Editor) sweepLocked(dir string) {
	if e.swept[dir] || len(e.swept) > MaxEditorEntries {
		return
	}
	e.swept[dir] = true
	entries, err := fs.ReadDir(e.root.FS(), dir)
	if err != nil {
		return // writing will say so
	}
	for _, d := range entries {
		if !strings.HasPrefix(d.Name(), temporary) || !d.Type().IsRegular() {
			continue
		}
		if info, err := d.Info(); err == nil && time.Since(info.ModTime()) > leftAfter {
			_ = e.root.Remove(path.Join(dir, d.Name()))
		}
	}
}

// replaceLocked puts a whole file in the place of another, or of none: was is what
// was there. With same it must be there still.
func (e *Editor) replaceLocked(clean, text string, was fs.FileInfo, same bool) error {
	e.sweepLocked(path.Dir(clean))
	mode := fs.FileMode(0o644)
	if was != nil {
		mode = was.Mode().Perm()
	}
	next := path.Join(path.Dir(clean), temporary+rand.Text())
	f, err := e.root.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("write %s: %w", clean, plain(err))
	}
	_, err = io.WriteString(f, text)
	if err == nil && was != nil {
		err = f.Chmod(mode) // what the umask took away
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil && same {
		if is, of := e.root.Lstat(clean); of != nil || !os.SameFile(was, is) || is.Size() != was.Size() || !is.ModTime().Equal(was.ModTime()) {
			err = errEditorMoved
		}
	}
	if err == nil {
		err = e.root.Rename(next, clean)
	}
	if err != nil {
		_ = e.root.Remove(next)
		return fmt.Errorf("write %s: %w", clean, plain(err))
	}
	return nil
}

// plain takes the path out of an error, for it is the machine's own.
func plain(err error) error {
	if of := (*fs.PathError)(nil); errors.As(err, &of) {
		return of.Err
	}
	if of := (*os.LinkError)(nil); errors.As(err, &of) {
		return of.Err
	}
	return err
}
