package agent

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// lay makes files, each with its folders, below a new folder.
func lay(t *testing.T, files ...string) string {
	t.Helper()
	dir := resolved(t.TempDir())
	for _, f := range files {
		path := filepath.Join(dir, filepath.FromSlash(f))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("{}"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// ACP-B19: what is the agent's own, for each way in which agents are installed, and
// what beside it is not.
func TestACP_B19_Home(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the paths of this test are those of unix")
	}
	for _, c := range []struct {
		name  string
		files []string
		argv  []string // @ is the folder; argv[0] is the executable
		work  string
		own   [][]string
		alien [][]string
	}{
		{
			name:  "npx: a folder made for this package, with what it depends on",
			files: []string{"npx/1/package.json", "npx/1/node_modules/@x/agent/dist/index.js", "npx/1/node_modules/@y/worker/bin/claude", "project/a.js"},
			argv:  []string{"/usr/bin/node", "@/npx/1/node_modules/@x/agent/dist/index.js"}, work: "project",
			own: [][]string{
				{"@/npx/1/node_modules/@y/worker/bin/claude"},
				{"/usr/bin/node", "--no-warnings", "@/npx/1/node_modules/@x/agent/dist/index.js", "worker"},
			},
			alien: [][]string{{"/usr/bin/node", "@/project/a.js"}, {"/bin/sh", "-c", "@/npx/1/node_modules/@x/agent/run.sh"}, {"/usr/bin/node"}},
		},
		{
			name:  "npm -g: beside everybody's programs",
			files: []string{"lib/node_modules/@x/agent/index.js", "lib/node_modules/@x/agent/node_modules/w/w.js", "lib/node_modules/npm/bin/npm-cli.js"},
			argv:  []string{"/usr/bin/node", "@/lib/node_modules/@x/agent/index.js"}, work: "project",
			own:   [][]string{{"/usr/bin/node", "@/lib/node_modules/@x/agent/node_modules/w/w.js"}},
			alien: [][]string{{"/usr/bin/node", "@/lib/node_modules/npm/bin/npm-cli.js", "test"}},
		},
		{
			name:  "in the project: its other packages are tools",
			files: []string{"project/package.json", "project/node_modules/agent/index.js", "project/node_modules/jest/jest.js"},
			argv:  []string{"/usr/bin/node", "@/project/node_modules/agent/index.js"}, work: "project/sub",
			own:   [][]string{{"/usr/bin/node", "@/project/node_modules/agent/index.js"}},
			alien: [][]string{{"/usr/bin/node", "@/project/node_modules/jest/jest.js"}},
		},
		{
			name:  "a program in a folder for all programs",
			files: []string{"local/bin/agent", "local/bin/make"},
			argv:  []string{"@/local/bin/agent"}, work: "project",
			own:   [][]string{{"@/local/bin/agent", "--worker"}},
			alien: [][]string{{"@/local/bin/make"}},
		},
		{
			name:  "a program in a folder of its own",
			files: []string{"opt/agent/agent", "opt/agent/helpers/rg", "opt/other/x"},
			argv:  []string{"@/opt/agent/agent"}, work: "project",
			own:   [][]string{{"@/opt/agent/helpers/rg"}},
			alien: [][]string{{"@/opt/other/x"}, {"@/opt/agent-2/agent"}},
		},
		{
			name:  "a script of the project itself",
			files: []string{"project/agent.py", "project/tool.py"},
			argv:  []string{"/usr/bin/python3.12", "-u", "@/project/agent.py"}, work: "project",
			own:   [][]string{{"/usr/bin/python3.12", "@/project/agent.py"}},
			alien: [][]string{{"/usr/bin/python3.12", "@/project/tool.py"}},
		},
		{
			name:  "an installed script, with the package's folder above it",
			files: []string{"src/agent/package.json", "src/agent/dist/index.js", "src/agent/dist/w.js", "src/agent/tools/rg"},
			argv:  []string{"/usr/bin/node", "@/src/agent/dist/index.js"}, work: "project",
			own:   [][]string{{"@/src/agent/tools/rg"}, {"/usr/bin/node", "@/src/agent/dist/w.js"}},
			alien: [][]string{{"@/src/other"}},
		},
		{
			name: "text on the command line", argv: []string{"/usr/bin/node", "-e", "agent()"}, work: "project",
			alien: [][]string{{"/usr/bin/node", "-e", "agent()"}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := lay(t, c.files...)
			at := func(argv []string) []string {
				out := make([]string, len(argv))
				for i, a := range argv {
					if out[i] = a; len(a) > 0 && a[0] == '@' {
						out[i] = dir + a[1:]
					}
				}
				return out
			}
			argv := at(c.argv)
			h := findHome(argv[0], argv, filepath.Join(dir, c.work))
			for _, x := range c.own {
				if x := at(x); !h.owns(x[0], x) {
					t.Errorf("%q is not the agent's own (home %+v)", x, h)
				}
			}
			for _, x := range c.alien {
				if x := at(x); h.owns(x[0], x) {
					t.Errorf("%q is the agent's own (home %+v)", x, h)
				}
			}
		})
	}
	if (*home)(nil).owns("/bin/x", nil) || (&home{}).owns("/bin/x", nil) {
		t.Error("no home owns something")
	}
}

// A launcher is not the agent: what it starts is.
func TestACP_B19_Launchers(t *testing.T) {
	dir := lay(t, "agent/index.js", "npm/bin/npx-cli.js")
	for _, c := range []struct {
		exe  string
		argv []string
		want bool
	}{
		{"/usr/bin/node", []string{"npx", "-y", "@x/agent"}, true},
		{"/usr/bin/node", []string{"node", dir + "/npm/bin/npx-cli.js", "-y", "@x/agent"}, true},
		{"/usr/bin/node", []string{"node", dir + "/agent/index.js"}, false},
		{"/usr/bin/dash", []string{"sh", "-c", "exec agent --acp"}, true},
		{"/usr/bin/env", []string{"env", "A=1", "agent"}, true},
		{"/opt/agent/agent", []string{"agent", "acp"}, false},
	} {
		if got := launcher(c.exe, c.argv, dir); got != c.want {
			t.Errorf("%q is a launcher: %v", c.argv, got)
		}
	}
}

// A shell that reads its commands from its input starts a new piece of work each
// time; one with a script is that piece of work.
func TestACP_B19_ShellsThatTakeOrders(t *testing.T) {
	for _, c := range []struct {
		argv []string
		want bool
	}{
		{[]string{"/bin/bash"}, true},
		{[]string{"-zsh"}, true},
		{[]string{"bash", "--norc", "-i"}, true},
		{[]string{"bash", "-l"}, true},
		{[]string{"bash", "-c", "make"}, false},
		{[]string{"bash", "-lc", "make"}, false},
		{[]string{"sh", "build.sh"}, false},
		{[]string{"node", "server.js"}, false},
		{nil, false},
	} {
		if got := takesOrders(&node{program: program{argv: c.argv}}); got != c.want {
			t.Errorf("%q takes orders: %v", c.argv, got)
		}
	}
}

func FuzzGlob(f *testing.F) {
	for _, s := range [][2]string{{"vite*", "vite --port 1"}, {"*", ""}, {"a*b*c", "aXbYc"}, {"a*a", "a"}, {"", ""}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, pattern, s string) {
		// The plain definition, for what it can be asked in time.
		if len(pattern) > 12 || len(s) > 12 {
			return
		}
		if got, want := glob(pattern, s), plainGlob(pattern, s); got != want {
			t.Errorf("glob(%q, %q) = %v", pattern, s, got)
		}
	})
}

func plainGlob(pattern, s string) bool {
	if pattern == "" {
		return s == ""
	}
	if pattern[0] != '*' {
		return s != "" && s[0] == pattern[0] && plainGlob(pattern[1:], s[1:])
	}
	for i := 0; i <= len(s); i++ {
		if plainGlob(pattern[1:], s[i:]) {
			return true
		}
	}
	return false
}
