//go:build unix

package adopt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const simple = `{"mcpServers": {"a": {"command": "npx", "args": ["b"]}}}`

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func open(t *testing.T, path string, o *Options) *Plan {
	t.Helper()
	p, err := Open(context.Background(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// alone fails if anything else than the file is left in its folder.
func alone(t *testing.T, path string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(list) != 1 {
		t.Errorf("%v, %v are left beside %s", err, list, path)
	}
}

// TestCommit: the real file behind a symbolic link is replaced as a whole with
// its mode and owner, and the link stays (DESIGN 11, 12: writes atomically).
func TestCommit(t *testing.T) {
	o := options(t)
	dir := t.TempDir()
	target := write(t, filepath.Join(dir, "real", "mcp.json"), simple)
	if err := os.Chmod(target, 0o640); err != nil {
		t.Fatal(err)
	}
	gid := os.Getgid()
	if os.Geteuid() == 0 {
		gid = 12345
	}
	if err := os.Chown(target, -1, gid); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link.json")
	if err := os.Symlink(filepath.Join("real", "mcp.json"), link); err != nil {
		t.Fatal(err)
	}
	p := open(t, link, o)
	if !strings.Contains(string(p.Diff()), "+"+strings.TrimSpace(string(p.After()))) || read(t, target) != simple {
		t.Errorf("a plan has changed something, or its diff is wrong:\n%s", p.Diff())
	}
	if _, err := p.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	if read(t, target) != string(p.After()) {
		t.Errorf("not what was planned:\n%s", read(t, target))
	}
	info, err := os.Lstat(link)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v, %v", info, err)
	}
	info, err = os.Stat(target)
	if err != nil || info.Mode() != 0o640 || int(info.Sys().(*syscall.Stat_t).Gid) != gid {
		t.Errorf("mode or owner is not kept: %v, %v", info, err)
	}
	alone(t, target)
	o.Undo = true
	if _, err := open(t, link, o).Commit(context.Background()); err != nil || read(t, target) != simple {
		t.Errorf("%v, undone to\n%s", err, read(t, target))
	}
}

// TestChangedMeanwhile: a change by somebody else between reading and writing
// is not lost: the plan is made anew; when that never ends, it is an error and
// the other's text stays (DESIGN 11, 12: compares and retries).
func TestChangedMeanwhile(t *testing.T) {
	ctx := context.Background()
	o := options(t)
	file := write(t, filepath.Join(t.TempDir(), "mcp.json"), simple)
	times := 0
	o.beforeRename = func() {
		if times++; times == 1 {
			write(t, file, `{"mcpServers": {"a": {"command": "npx", "args": ["b"]}, "new": {"command": "uvx"}}}`)
		}
	}
	p, err := open(t, file, o).Commit(ctx)
	if err != nil || times != 2 || len(p.Servers) != 2 || strings.Count(read(t, file), belayPath) != 2 {
		t.Errorf("%v after %d attempts:\n%s", err, times, read(t, file))
	}
	alone(t, file)

	write(t, file, simple)
	n := 0
	o.beforeRename = func() { n++; write(t, file, fmt.Sprintf(`{"n": %d, "mcpServers": {"a": {"command": "npx"}}}`, n)) }
	if _, err := open(t, file, o).Commit(ctx); !errors.Is(err, ErrChanged) || n != attempts {
		t.Errorf("%v after %d attempts", err, n)
	}
	if text := read(t, file); !strings.Contains(text, fmt.Sprint(n)) || strings.Contains(text, "belay") {
		t.Errorf("the other's text is lost:\n%s", text)
	}
	alone(t, file)

	// Broken meanwhile, and gone meanwhile.
	write(t, file, simple)
	o.beforeRename = func() { write(t, file, `{"mcpServers": `) }
	if _, err := open(t, file, o).Commit(ctx); !errors.Is(err, ErrSyntax) || read(t, file) != `{"mcpServers": ` {
		t.Errorf("%v:\n%s", err, read(t, file))
	}
	alone(t, file)
	write(t, file, simple)
	o.beforeRename = func() { _ = os.Rename(file, file+".moved") }
	if _, err := open(t, file, o).Commit(ctx); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	alone(t, file)
}

// TestNeverHalf: while a file is adopted and undone again and again, a reader
// never sees half a file or none.
func TestNeverHalf(t *testing.T) {
	ctx := context.Background()
	file := write(t, filepath.Join(t.TempDir(), "mcp.json"), simple)
	done := make(chan struct{})
	o := options(t)
	go func() {
		defer close(done)
		for i := range 60 {
			o.Undo = i%2 == 1
			p, err := Open(ctx, file, o)
			if err == nil {
				_, err = p.Commit(ctx)
			}
			if err != nil && !errors.Is(err, ErrChanged) {
				t.Error(err)
			}
		}
	}()
	for {
		select {
		case <-done:
			alone(t, file)
			return
		default:
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := parse(text); err != nil {
			t.Errorf("half a file was seen: %v", err)
		}
	}
}

// TestLeftAlone: files of a policy, read-only ones, those of somebody else,
// with hard links, or tracked by git are left alone unless forced (DESIGN 11, 12).
func TestLeftAlone(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	cases := map[string]func(t *testing.T) (file, want string){
		"policy": func(t *testing.T) (string, string) {
			return write(t, filepath.Join(dir, "policy", "Managed-mcp.json"), simple), "a policy manages it"
		},
		"read-only": func(t *testing.T) (string, string) {
			f := write(t, filepath.Join(dir, "ro", "mcp.json"), simple)
			if err := os.Chmod(f, 0o400); err != nil {
				t.Fatal(err)
			}
			return f, "it is read-only"
		},
		"hard links": func(t *testing.T) (string, string) {
			f := write(t, filepath.Join(dir, "hard", "mcp.json"), simple)
			if err := os.Link(f, f+".2"); err != nil {
				t.Fatal(err)
			}
			return f, "it has 2 hard links"
		},
		"tracked": func(t *testing.T) (string, string) {
			f := write(t, filepath.Join(dir, "repo", "sub", ".mcp.json"), simple)
			git(t, filepath.Join(dir, "repo"), "init", "-q")
			git(t, filepath.Join(dir, "repo"), "add", "sub/.mcp.json")
			return f, "git tracks it"
		},
		"tracked behind a link": func(t *testing.T) (string, string) {
			write(t, filepath.Join(dir, "dotfiles", "mcp.json"), simple)
			git(t, filepath.Join(dir, "dotfiles"), "init", "-q")
			git(t, filepath.Join(dir, "dotfiles"), "add", "mcp.json")
			link := filepath.Join(dir, "linked.json")
			if err := os.Symlink(filepath.Join(dir, "dotfiles", "mcp.json"), link); err != nil {
				t.Fatal(err)
			}
			return link, "git tracks it"
		},
		"no repository to ask": func(t *testing.T) (string, string) {
			f := write(t, filepath.Join(dir, "broken", "mcp.json"), simple)
			write(t, filepath.Join(dir, "broken", ".git"), "gitdir: /nowhere\n")
			return f, "git does not say"
		},
	}
	if os.Geteuid() == 0 {
		cases["somebody else's"] = func(t *testing.T) (string, string) {
			f := write(t, filepath.Join(dir, "other", "mcp.json"), simple)
			if err := os.Chown(f, 12345, -1); err != nil {
				t.Fatal(err)
			}
			return f, "another user (uid 12345)"
		}
	}
	for name, prepare := range cases {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			file, want := prepare(t)
			before, _ := os.Stat(file)
			p := open(t, file, o)
			if !strings.Contains(p.Blocked, want) {
				t.Errorf("blocked: %q, want %q", p.Blocked, want)
			}
			if _, err := p.Commit(ctx); err != nil || read(t, file) != simple {
				t.Errorf("%v: it was not left alone:\n%s", err, read(t, file))
			}
			o.Force = true
			if _, err := open(t, file, o).Commit(ctx); err != nil || !strings.Contains(read(t, file), belayPath) {
				t.Errorf("%v: it was not forced:\n%s", err, read(t, file))
			}
			after, _ := os.Stat(file)
			if before.Mode() != after.Mode() || before.Sys().(*syscall.Stat_t).Uid != after.Sys().(*syscall.Stat_t).Uid {
				t.Errorf("mode or owner is not kept: %v, %v", before.Mode(), after.Mode())
			}
		})
	}
	t.Run("not tracked", func(t *testing.T) {
		f := write(t, filepath.Join(dir, "repo", "sub", "other.json"), simple)
		if p := open(t, f, options(t)); p.Blocked != "" {
			t.Error(p.Blocked)
		}
	})
	t.Run("no git", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		if why := tracked(ctx, filepath.Join(dir, "repo", "sub", "other.json")); !strings.Contains(why, "no git to ask") {
			t.Error(why)
		}
	})
	t.Run("etc", func(t *testing.T) {
		o := options(t)
		if why := o.Editors.managedBy(o.Host, "/etc/claude-code/x.json"); why == "" {
			t.Error("/etc is nobody's")
		}
		if why := o.Editors.managedBy(o.Host, "/etcetera/x.json"); why != "" {
			t.Error(why)
		}
	})
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

// TestBadFile: what cannot be read is one error that names the path, at once.
func TestBadFile(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	if err := errors.Join(os.Symlink(a, b), os.Symlink(b, a), os.Symlink(filepath.Join(dir, "gone"), filepath.Join(dir, "dangling"))); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	huge := write(t, filepath.Join(dir, "huge"), "")
	if err := os.Truncate(huge, maxFile+1); err != nil {
		t.Fatal(err)
	}
	broken := write(t, filepath.Join(dir, "broken.json"), "{\n  \"a\" 1}")
	for path, want := range map[string]string{
		filepath.Join(dir, "gone"):     "no such file",
		filepath.Join(dir, "dangling"): "no such file",
		a:                              "too many links",
		dir:                            "it is a folder",
		pipe:                           "not a regular file",
		huge:                           "larger than 32 MiB",
		broken:                         broken + ":2:7: not valid JSON: ",
	} {
		_, err := Open(context.Background(), path, options(t))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), path) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if os.Geteuid() != 0 {
		secret := write(t, filepath.Join(dir, "secret"), simple)
		if err := os.Chmod(secret, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(context.Background(), secret, options(t)); !errors.Is(err, fs.ErrPermission) {
			t.Error(err)
		}
	}
}

// TestRemoteNames: two servers that belay serve would know by one name are not
// mixed up, in one file or in two.
func TestRemoteNames(t *testing.T) {
	o := options(t)
	o.Remote = true
	dir := t.TempDir()
	one := write(t, filepath.Join(dir, "one.json"), `{"mcpServers": {"x/y": {"url": "http://localhost:1/"}, "x y": {"url": "http://localhost:2/"}, "z": {"url": "http://localhost:3/"}}}`)
	two := write(t, filepath.Join(dir, "two.json"), `{"mcpServers": {"x-y": {"url": "http://localhost:1/"}, "z": {"url": "http://localhost:4/"}}}`)
	p, q := open(t, one, o), open(t, two, o)
	var got []Action
	for _, s := range append(p.Servers, q.Servers...) {
		got = append(got, s.Action)
	}
	if fmt.Sprint(got) != "[serve skip serve serve skip]" {
		t.Errorf("%v\n%s%s", got, describe(p.Servers), describe(q.Servers))
	}
}
