package peers

import (
	"path"
	"slices"
	"strings"
)

// Command is one program with its arguments, as it can be seen in a command
// line. Name is without folder, version and .exe: "docker", "@scope/package".
type Command struct {
	Name string
	Args []string
}

const (
	maxUnwrap   = 12  // wrappers in wrappers; more is no honest command line
	maxCommands = 64  // commands in one line of a shell
	maxArgs     = 512 // arguments that are looked at
)

// Commands lists the commands that argv would run, the outermost first: the
// wrappers (env, sudo, timeout, npx, uvx, sh -c, …) and what they wrap.
func Commands(argv []string) []Command {
	u := unwrapper{}
	u.add(argv, 0)
	return u.found
}

type unwrapper struct{ found []Command }

func (u *unwrapper) add(argv []string, depth int) {
	if len(argv) == 0 || depth > maxUnwrap || len(u.found) >= maxCommands {
		return
	}
	argv = argv[:min(len(argv), maxArgs)]
	c := Command{Name: programName(argv[0]), Args: argv[1:]}
	u.found = append(u.found, c)
	if isShell(c.Name) {
		if line, ok := shellLine(c.Args); ok {
			for _, words := range shellCommands(line) {
				u.add(words, depth+1)
			}
			return
		}
	}
	if inner := inside(c); inner != nil {
		u.add(inner, depth+1)
	}
}

// inside returns the command that c runs for somebody, or nil.
func inside(c Command) []string {
	if w, ok := wrappers[c.Name]; ok {
		return w.inner(c.Args)
	}
	if strings.HasPrefix(c.Name, "python") || strings.HasPrefix(c.Name, "pypy") {
		return wrapper{values: []string{"-W", "-X"}, module: true}.inner(c.Args)
	}
	return nil
}

// wrapper says how to find the command inside a wrapper's arguments: flags are
// passed over, then come pass further words, then the command.
type wrapper struct {
	first       []string // the subcommands that wrap; none: the command always does
	values      []string // flags whose value is the next argument
	pkg         []string // flags whose value is the package that will run
	pass        int      // words before the command that are not flags (timeout's time)
	assignments bool     // NAME=value words come before the command
	module      bool     // python: -m names a module, else a script
	dashes      bool     // the command comes after --
	shell       []string // flags whose value is a line for the shell
}

var wrappers = map[string]wrapper{
	"env":     {values: []string{"-u", "--unset", "-C", "--chdir", "-S", "--split-string"}, assignments: true},
	"sudo":    {values: []string{"-u", "-g", "-h", "-p", "-C", "-D", "-R", "-T", "-U", "-r", "-t"}, assignments: true},
	"doas":    {values: []string{"-u", "-C"}},
	"nice":    {values: []string{"-n", "--adjustment"}},
	"ionice":  {values: []string{"-c", "-n", "--class", "--classdata"}},
	"chrt":    {pass: 1},
	"taskset": {pass: 1},
	"nohup":   {}, "setsid": {}, "exec": {}, "command": {}, "time": {}, "caffeinate": {values: []string{"-t", "-w"}},
	"winpty": {}, "arch": {}, "unbuffer": {}, "firejail": {}, "bwrap": {dashes: true}, "dbus-run-session": {}, "xvfb-run": {values: []string{"-n", "-s", "-e", "-f", "-p", "-w"}},
	"timeout": {values: []string{"-k", "--kill-after", "-s", "--signal"}, pass: 1}, "gtimeout": {values: []string{"-k", "-s"}, pass: 1},
	"stdbuf": {values: []string{"-i", "-o", "-e"}}, "strace": {values: []string{"-e", "-o", "-p", "-s"}}, "ltrace": {values: []string{"-e", "-o"}},
	"direnv": {first: []string{"exec"}, pass: 1}, "dotenv": {values: []string{"-f", "-e"}}, "op": {first: []string{"run"}, dashes: true}, "doppler": {first: []string{"run"}, dashes: true},
	"mise": {first: []string{"exec", "x"}, dashes: true}, "asdf": {first: []string{"exec"}}, "nix-shell": {values: []string{"-p"}, shell: []string{"--run", "--command"}}, "nix": {first: []string{"run", "shell", "develop"}, values: []string{"-c", "--command"}},
	"cmd":         {shell: []string{"/c", "/C", "/k", "/s"}},
	"systemd-run": {values: []string{"-p", "-u", "--unit", "--property", "-E"}}, "systemd-inhibit": {},
	"belay": {first: []string{"wrap", "exec"}, dashes: true},

	"npx":    {values: []string{"-w", "--workspace", "--registry", "--cache", "--prefix", "--loglevel"}, pkg: []string{"-p", "--package"}, shell: []string{"-c", "--call"}},
	"npm":    {first: []string{"exec", "x"}, values: []string{"-w", "--workspace", "--prefix"}, pkg: []string{"-p", "--package"}, shell: []string{"-c", "--call"}},
	"pnpm":   {first: []string{"dlx", "exec"}, values: []string{"-C", "--dir"}, pkg: []string{"--package"}},
	"pnpx":   {pkg: []string{"--package"}},
	"yarn":   {first: []string{"dlx", "exec"}, pkg: []string{"-p", "--package"}},
	"bun":    {first: []string{"x", "run"}},
	"bunx":   {pkg: []string{"-p", "--package"}},
	"uvx":    {values: []string{"--with", "-w", "--python", "-p", "--index", "--index-url", "-i", "--directory", "--project"}, pkg: []string{"--from"}},
	"uv":     {first: []string{"run", "tool run"}, values: []string{"--with", "--python", "-p", "--directory", "--project", "--index", "--env-file"}, pkg: []string{"--from"}},
	"pipx":   {first: []string{"run"}, values: []string{"--python"}, pkg: []string{"--spec"}},
	"poetry": {first: []string{"run"}}, "pdm": {first: []string{"run"}}, "hatch": {first: []string{"run"}}, "rye": {first: []string{"run"}}, "pixi": {first: []string{"run"}}, "conda": {first: []string{"run"}, values: []string{"-n", "-p"}}, "bundle": {first: []string{"exec"}},
	"node": {values: []string{"-r", "--require", "--import", "--loader", "-C"}, module: true}, "deno": {first: []string{"run"}, values: []string{"-c", "--config"}}, "tsx": {}, "ts-node": {},
	"go": {first: []string{"run"}},
}

func (w wrapper) inner(args []string) []string {
	if args = w.afterFirst(args); args == nil {
		return nil
	}
	var pkg string
	pass := w.pass
	for i := 0; i < len(args); i++ {
		arg := args[i]
		flag, inline, hasValue := strings.Cut(arg, "=")
		switch {
		case arg == "--":
			return w.command(pkg, args[i+1:])
		case strings.HasPrefix(arg, "-") && len(arg) > 1, contains(w.shell, arg):
			value := inline
			if !hasValue && i+1 < len(args) {
				value = args[i+1]
			}
			switch {
			case contains(w.shell, flag):
				return []string{"sh", "-c", value}
			case contains(w.pkg, flag):
				pkg = value
			case w.module && flag == "-m":
				return append([]string{value}, args[min(i+2, len(args)):]...)
			case w.module && (flag == "-c" || flag == "-e" || flag == "--eval" || flag == "-p" || flag == "--print"):
				return nil // program text
			case flag == "-S" && contains(w.values, "-S"):
				return append(shellWords(value), args[min(i+2, len(args)):]...)
			case !contains(w.values, flag):
				continue
			}
			if !hasValue {
				i++
			}
		case w.dashes, w.assignments && hasValue:
		case pass > 0:
			pass--
		default:
			return w.command(pkg, args[i:])
		}
	}
	return w.command(pkg, nil)
}

// afterFirst is args after the subcommand that wraps; nil if there is none.
func (w wrapper) afterFirst(args []string) []string {
	if len(w.first) == 0 {
		return args
	}
	for i, arg := range args {
		if strings.HasPrefix(arg, "-") {
			continue
		}
		for _, f := range w.first {
			words := strings.Fields(f)
			if arg == words[0] && (len(words) == 1 || i+1 < len(args) && args[i+1] == words[1]) {
				return args[i+len(words):]
			}
		}
		return nil
	}
	return nil
}

func (w wrapper) command(pkg string, rest []string) []string {
	if pkg == "" {
		return rest
	}
	if len(rest) > 0 {
		rest = rest[1:] // the name of the package's program
	}
	return append([]string{pkg}, rest...)
}

func contains(list []string, s string) bool { return slices.Contains(list, s) }

// programName reduces argv[0], a script's path or a package's name to what
// rules are written with.
func programName(s string) string {
	s = strings.ReplaceAll(s, `\`, "/")
	if _, rest, ok := cutLast("/"+s, "/node_modules/"); ok && !strings.HasPrefix(rest, ".bin/") {
		parts := strings.SplitN(rest, "/", 3)
		if strings.HasPrefix(rest, "@") && len(parts) > 1 {
			return parts[0] + "/" + parts[1]
		}
		return parts[0]
	}
	if strings.HasPrefix(s, "@") && strings.Count(s, "/") == 1 {
		return cutVersion(s, 1)
	}
	s = path.Base(s)
	lower := strings.ToLower(s)
	for _, ext := range []string{".exe", ".cmd", ".bat", ".ps1", ".com", ".mjs", ".cjs", ".js", ".ts", ".py"} {
		if strings.HasSuffix(lower, ext) && len(s) > len(ext) {
			s = s[:len(s)-len(ext)]
			break
		}
	}
	return cutVersion(s, 1)
}

// cutVersion removes @1.2.3, ==1.2 and [extra] from a package's name.
func cutVersion(s string, from int) string {
	if len(s) <= from {
		return s
	}
	for _, sep := range []string{"@", "==", ">=", "~=", "["} {
		if i := strings.Index(s[from:], sep); i >= 0 {
			s = s[:from+i]
		}
	}
	return s
}

func cutLast(s, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
