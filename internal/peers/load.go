package peers

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"
)

// ErrBadFile is wrapped by every error about a file of the user's.
var ErrBadFile = errors.New("peer facts not used")

// PathVariable names the environment variable that names the user's file.
const PathVariable = "BELAY_PEERS"

const maxFile = 1 << 20 // bytes; a file of facts is a few KiB

// Load returns the facts for this process: the built-in ones and the user's
// before them. It does its work once. A user's file that cannot be used is an
// error beside Facts that hold the built-in ones; it is to be shown once, as a
// warning.
var Load = sync.OnceValues(func() (*Facts, error) {
	return LoadFile(userFile(os.Getenv))
})

// userFile is where the user's facts are, and whether it was asked for by name.
func userFile(getenv func(string) string) (file string, named bool) {
	if file = getenv(PathVariable); file != "" {
		return file, true
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", false
	}
	return filepath.Join(dir, "belay", "peers.yaml"), false
}

// LoadFile is [Load] with an explicit file; a file that is not there is only
// an error when it was asked for by name. The Facts are never nil.
func LoadFile(file string, named bool) (*Facts, error) {
	if file == "" {
		return &Facts{}, nil
	}
	text, err := read(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !named:
		return &Facts{}, nil
	case err != nil:
		return &Facts{}, fmt.Errorf("%w, only the built-in ones hold: %w", ErrBadFile, err)
	}
	d, err := parse(file, text)
	if err != nil {
		return &Facts{}, fmt.Errorf("%w, only the built-in ones hold: %w", ErrBadFile, err)
	}
	return &Facts{user: d}, nil
}

func read(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s: longer than %d bytes", file, maxFile)
	}
	return text, err
}

// parse reads one document strictly. Errors are one line: file:line: what is
// wrong (what was probably meant).
func parse(file string, text []byte) (document, error) {
	var d document
	if len(bytes.TrimSpace(text)) == 0 {
		return d, nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(text), yaml.DisallowUnknownField())
	if err := dec.Decode(&d); err != nil && !errors.Is(err, io.EOF) {
		return document{}, explain(file, err)
	}
	if err := d.check(); err != nil {
		return document{}, fmt.Errorf("%s: %w", file, err)
	}
	return d, nil
}

// explain turns the parser's error, which prints the source over many lines,
// into one line with the nearest key that exists.
func explain(file string, err error) error {
	where := file
	var bad yaml.Error
	if !errors.As(err, &bad) {
		return fmt.Errorf("%s: %s", file, firstLine(err.Error()))
	}
	if t := bad.GetToken(); t != nil && t.Position != nil {
		where = fmt.Sprintf("%s:%d", file, t.Position.Line)
	}
	var unknown *yaml.UnknownFieldError
	if errors.As(err, &unknown) && unknown.Token != nil {
		key := unknown.Token.Value
		if slices.Contains(keys, key) {
			return fmt.Errorf("%s: %q is not a key here (relays and slow have command, words, unless and why; spare has comm, args, not_args and why; servers have package, restart and why)", where, key)
		}
		if near := nearest(key); near != "" {
			return fmt.Errorf("%s: unknown key %q (did you mean %q?)", where, key, near)
		}
		return fmt.Errorf("%s: unknown key %q (known: %s)", where, key, strings.Join(keys, ", "))
	}
	return fmt.Errorf("%s: %s", where, firstLine(bad.GetMessage()))
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return strings.TrimSpace(line)
}

// keys are all keys that a file may have.
var keys = []string{
	"relays", "spare", "slow", "servers",
	"command", "words", "unless", "why", "relay", "comm", "args", "not_args", "package", "restart",
}

// nearest is the known key that is closest to s, if one is close at all.
func nearest(s string) string {
	best, limit := "", len(s)/3+2
	for _, k := range keys {
		if d := distance(s, k); d < limit {
			best, limit = k, d
		}
	}
	return best
}

// distance is the number of characters to insert, delete or replace.
func distance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		left := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := left
			if a[i] != b[j] {
				cost++
			}
			left = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
