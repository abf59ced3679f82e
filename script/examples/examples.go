package examples

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

//go:embed tools sample
var embedded embed.FS

// Names are the tools' folders, which are their ids too.
func Names() []string { return []string{"search_sources", "scan_project", "replace_in_project"} }

// FS has one folder for each of [Names].
func FS() fs.FS { return sub("tools") }

// Hosts are the public hosts that search_sources asks unless it is told others: it
// needs them among the allowed ones.
func Hosts() []string {
	return []string{"api.crossref.org", "api.github.com", "api.stackexchange.com", "en.wikipedia.org", "hn.algolia.com"}
}

// Places are the folders that [Unpack] wrote.
type Places struct {
	Tools  string // the projects, one folder each
	Sample string // a small project for the editor's tools to work on
}

// Unpack writes the examples below a folder, which is made if need be. Files that are
// there already and differ are replaced, so that every start of a newer Belay has its
// own examples; other files are left alone.
func Unpack(dir string) (Places, error) {
	p := Places{Tools: filepath.Join(dir, "tools"), Sample: filepath.Join(dir, "sample")}
	for from, to := range map[string]string{"tools": p.Tools, "sample": p.Sample} {
		if err := unpack(sub(from), to); err != nil {
			return Places{}, fmt.Errorf("unpack the examples: %w", err)
		}
	}
	return p, nil
}

func sub(dir string) fs.FS {
	part, err := fs.Sub(embedded, dir)
	if err != nil {
		panic("examples: " + err.Error()) // the name is one of ours
	}
	return part
}

func unpack(from fs.FS, to string) error {
	return fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, filepath.FromSlash(name))
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		text, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		return put(target, text)
	})
}

// put makes a file have this text. It is written whole beside its place first: two
// starts at once, or one that is killed, leave no half file.
func put(target string, text []byte) error {
	old, err := os.ReadFile(target)
	switch {
	case err == nil && bytes.Equal(old, text):
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(target), "."+path.Base(filepath.ToSlash(target))+"-*")
	if err != nil {
		return err
	}
	_, err = next.Write(text)
	if err == nil {
		err = next.Chmod(0o644)
	}
	if closed := next.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(next.Name(), target)
	}
	if err != nil {
		_ = os.Remove(next.Name())
	}
	return err
}
