package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// home is where an agent is installed. A process that runs something from there is
// the agent's own (ACP-B19): a worker, a helper, the agent once more.
//
// It must be narrow: what lies in it is never ended by the Stop of a turn. A folder
// that holds other people's programs (bin, a package of the project that is being
// worked on) is no home; there the very file counts alone.
type home struct {
	dir  string // "": none
	file string // the agent's program or script
}

// findHome finds the home of a program with its arguments, which works in the
// folder dir.
func findHome(exe string, argv []string, dir string) *home {
	file := exe
	if script := scriptOf(exe, argv, dir); script != "" {
		file = script
	} else if interprets(exe) {
		return &home{} // text on the command line, or a way to call it that is not known
	}
	if file == "" {
		return &home{}
	}
	h := &home{file: resolved(file)}
	h.dir = installDir(h.file, resolved(dir))
	return h
}

// owns reports whether a process runs something from home.
func (h *home) owns(exe string, argv []string) bool {
	if h == nil || h.file == "" {
		return false
	}
	if h.has(exe) {
		return true
	}
	if !interprets(exe) {
		return false
	}
	// The script: the first argument that is no flag. A flag may have its value
	// behind it, so that the first few are looked at.
	for _, arg := range argv[min(1, len(argv)):min(6, len(argv))] {
		if isText(arg) {
			return false
		}
		if filepath.IsAbs(arg) && h.has(resolved(arg)) {
			return true
		}
	}
	return false
}

// isText reports whether what follows is a program itself, not the file of one.
func isText(flag string) bool {
	switch flag {
	case "-c", "-lc", "-ic", "-e", "-p", "-m", "--eval", "--print":
		return true
	}
	return false
}

func (h *home) has(file string) bool {
	return file == h.file || h.dir != "" && strings.HasPrefix(file, h.dir+string(filepath.Separator))
}

// interpreters run a file that their arguments name.
var interpreters = []string{"node", "nodejs", "bun", "deno", "python", "pypy", "ruby", "perl", "php", "java", "sh", "bash", "dash", "zsh"}

func interprets(exe string) bool {
	name := strings.TrimSuffix(filepath.Base(exe), ".exe")
	name = strings.TrimRight(name, "0123456789.-")
	return slices.Contains(interpreters, name)
}

// scriptOf is the file that an interpreter was given; "" if there is none.
func scriptOf(exe string, argv []string, dir string) string {
	if !interprets(exe) {
		return ""
	}
	for _, arg := range argv[min(1, len(argv)):min(6, len(argv))] {
		if isText(arg) {
			return ""
		}
		if strings.HasPrefix(arg, "-") {
			continue
		}
		if !filepath.IsAbs(arg) {
			arg = filepath.Join(dir, arg)
		}
		if info, err := os.Stat(arg); err == nil && info.Mode().IsRegular() {
			return arg
		}
	}
	return ""
}

// modules is the folder in which npm and its kin install packages.
const modules = "node_modules"

// installDir is the folder that belongs to the program alone; "" if there is none.
func installDir(file, work string) string {
	dir := filepath.Dir(file)
	if top, pkg, ok := packageOf(file); ok {
		// A folder with a package.json of its own was made for what is installed in it,
		// unless it is the project that the agent works on. Without one it is the
		// folder for everybody's programs.
		_, err := os.Stat(filepath.Join(filepath.Dir(top), "package.json"))
		if err == nil && !holds(filepath.Dir(top), work) {
			return top
		}
		return pkg
	}
	for up, n := dir, 0; n < 4 && !shared(up, work); up, n = filepath.Dir(up), n+1 {
		if _, err := os.Stat(filepath.Join(up, "package.json")); err == nil {
			return up
		}
	}
	if shared(dir, work) {
		return ""
	}
	return dir
}

// packageOf takes a path in node_modules apart: the outermost such folder, and the
// package in it that holds the file.
func packageOf(file string) (top, pkg string, ok bool) {
	sep := string(filepath.Separator)
	before, rest, ok := strings.Cut(file, sep+modules+sep)
	if !ok {
		return "", "", false
	}
	top = before + sep + modules
	parts := strings.Split(rest, sep)
	n := 1
	if strings.HasPrefix(rest, "@") {
		n = 2
	}
	if len(parts) <= n { // a file in the folder itself
		return "", "", false
	}
	return top, filepath.Join(append([]string{top}, parts[:n]...)...), true
}

// shared reports whether a folder holds more than one program's own things.
func shared(dir, work string) bool {
	switch filepath.Base(dir) {
	case "bin", "sbin", "libexec", "tmp", ".bin", modules, "opt", "lib", "local", "usr", string(filepath.Separator), ".":
		return true
	}
	homeDir, _ := os.UserHomeDir()
	return dir == resolved(homeDir) || dir == resolved(os.TempDir()) || dir == filepath.Dir(dir) || holds(dir, work)
}

// holds reports whether a folder is, or lies above, another.
func holds(dir, other string) bool {
	return dir == other || strings.HasPrefix(other, strings.TrimSuffix(dir, string(filepath.Separator))+string(filepath.Separator))
}

// resolved is a path without symbolic links, as the kernel names programs.
func resolved(path string) string {
	if path == "" {
		return ""
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if r, err := filepath.EvalSymlinks(path); err == nil {
		return r
	}
	return path
}
