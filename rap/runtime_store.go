package rap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Stored is one live subscription as a [Store] keeps it. It holds no secret: of
// the callback URL there is a digest only.
type Stored struct {
	Key    string          `json:"key"` // of the subscription; hexadecimal
	ID     string          `json:"id"`
	Thread string          `json:"thread"`
	Server string          `json:"server"`
	Tool   string          `json:"tool"`
	CallID *string         `json:"call_id,omitempty"`
	Owner  string          `json:"owner,omitempty"`
	Since  time.Time       `json:"since"`
	Data   json.RawMessage `json:"data,omitempty"`
}

// Store keeps live subscriptions over a restart (RAP-41, RAP-77). A Put that has
// returned outlives the process. Safe for concurrent use.
type Store interface {
	Load() ([]Stored, error)
	Put(s Stored) error
	Delete(key string) error // of one that is not there: nil
}

// ErrStore says that a store's file cannot be used.
var ErrStore = errors.New("the file of live subscriptions cannot be used")

// maxStore bounds the file of a [FileStore], maxStored its entries.
const (
	maxStore  = 64 << 20
	maxStored = 100_000
)

// FileStore is a [Store] in one file, which only its owner can read, and which is
// replaced in one step by each change.
type FileStore struct {
	path string

	mu   sync.Mutex // guards the fields below
	list map[string]Stored
}

// OpenStore reads the file, which need not be there. Errors wrap [ErrStore].
func OpenStore(path string) (*FileStore, error) {
	s := &FileStore{path: path, list: map[string]Stored{}}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > maxStore {
		return nil, fmt.Errorf("%w: %s is no plain file of at most %d bytes", ErrStore, path, maxStore)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxStore))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	var list []Stored
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrStore, path, err)
	}
	for _, one := range list {
		s.list[one.Key] = one
	}
	return s, nil
}

// Load implements [Store].
func (s *FileStore) Load() ([]Stored, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sortedLocked(), nil
}

func (s *FileStore) sortedLocked() []Stored {
	list := slices.Collect(maps.Values(s.list))
	slices.SortFunc(list, func(a, b Stored) int { return a.Since.Compare(b.Since) })
	return list
}

// Put implements [Store].
func (s *FileStore) Put(one Stored) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, there := s.list[one.Key]
	if !there && len(s.list) >= maxStored {
		return fmt.Errorf("%w: %d subscriptions are kept already", ErrStore, len(s.list))
	}
	s.list[one.Key] = one
	err := s.writeLocked()
	if err != nil {
		if delete(s.list, one.Key); there {
			s.list[one.Key] = before
		}
	}
	return err
}

// Delete implements [Store].
func (s *FileStore) Delete(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, there := s.list[key]
	if !there {
		return nil
	}
	delete(s.list, key)
	if err := s.writeLocked(); err != nil {
		s.list[key] = before
		return err
	}
	return nil
}

// writeLocked replaces the file: whoever reads it sees the old state or the new.
func (s *FileStore) writeLocked() error {
	text, err := json.Marshal(s.sortedLocked())
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	if err := replaceFile(s.path, text); err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	return nil
}

// replaceFile writes beside the file, and then puts that in its place.
func replaceFile(path string, text []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".belay-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if other := f.Close(); err == nil {
		err = other
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
