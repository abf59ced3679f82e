package peers

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func words(s string) []string { return strings.Fields(s) }

// TestBuiltinFiles: every file that is compiled in parses strictly, and its
// patterns are ones that package proc can use.
func TestBuiltinFiles(t *testing.T) {
	for name, text := range map[string][]byte{
		"relays": relaysYAML, "spare": spareYAML, "slow": slowYAML, "servers": serversYAML,
	} {
		d, err := parse(name+".yaml", text)
		if err != nil {
			t.Errorf("%v", err)
		}
		if len(d.Relays)+len(d.Spare)+len(d.Slow)+len(d.Servers) == 0 {
			t.Errorf("%s.yaml says nothing", name)
		}
		if !strings.Contains(string(text), "Looked at 20") {
			t.Errorf("%s.yaml has no date (DESIGN 11, 13)", name)
		}
	}
	for _, r := range (&Facts{}).SpareRules() {
		if _, err := path.Match(r.Comm, "x"); err != nil || r.Why == "" {
			t.Errorf("spare rule %+v: pattern error %v, or no reason", r, err)
		}
		if literal := strings.TrimRight(r.Comm, "*"); len(literal) > 15 {
			t.Errorf("spare rule %q can never match: the kernel keeps 15 bytes of a name", r.Comm)
		}
	}
}

// TestRelay proves DESIGN 11, 4: a command whose death proves nothing is
// known as such, also behind the wrappers that people use.
func TestRelay(t *testing.T) {
	f := &Facts{}
	for _, argv := range [][]string{
		words("docker run --rm -i mcp/fetch"),
		words("/usr/bin/docker --context far exec -it box sh"),
		words("podman run x"),
		words("kubectl exec -it pod -- sh"),
		words("oc rsh pod"),
		words("ssh -T host tool"),
		words("mosh host"),
		words("npx -y mcp-remote https://example.com/mcp"),
		words("npx --yes mcp-remote@latest https://example.com/mcp"),
		words("npx -y -p mcp-remote@0.1.2 mcp-remote https://example.com/mcp"),
		words("node /opt/x/node_modules/mcp-remote/dist/proxy.js https://example.com/mcp"),
		words("/opt/x/node_modules/.bin/mcp-remote https://example.com"),
		words("npx -y supergateway --streamableHttp https://example.com/mcp"),
		words("uvx mcp-proxy --transport=streamablehttp https://example.com/mcp"),
		words("aws ssm start-session --target i-1"),
		words("aws --profile p ecs execute-command --task t"),
		words("gcloud compute ssh vm"),
		words("gcloud --project p compute ssh vm"),
		words("flyctl ssh console"),
		words("wsl.exe -e tool"),
		{`C:\Windows\System32\wsl.exe`, "tool"},
		words("env -i A=1 docker run x"),
		{"env", "-S", "docker run x"},
		words("sudo -u me docker run x"),
		words("timeout -k 5 60 ssh host"),
		words("belay wrap --name x -- docker run x"),
		words("belay exec --grace 2s -- ssh host"),
		{"sh", "-c", "cd /tmp && exec docker run --rm x"},
		{"bash", "-lc", "FOO=1 ssh host 'do it'"},
		{"sh", "-c", "echo $(kubectl exec pod -- date)"},
		{"bash", "-c", `if true; then "docker" run x; fi`},
		{"sh", "-c", `exec env A=1 npx -y mcp-remote https://x`},
		{"cmd", "/c", "npx -y mcp-remote https://x"},
		words("rsync -a dir host:dir"),
		words("psql -c select"),
	} {
		if why, ok := f.Relay(argv); !ok || why == "" {
			t.Errorf("Relay(%q) = %q, %v; want a reason", argv, why, ok)
		}
	}
	for _, argv := range [][]string{
		nil,
		{""},
		words("node server.js"),
		words("npx -y @modelcontextprotocol/server-everything"),
		words("npx -y supergateway --stdio local-server"),
		words("docker ps"),
		words("python3 -m mcp_server_fetch"),
		words("sh run.sh docker run x"),
		{"sh", "-c", "echo 'docker run x' # ssh host"},
		{"python3", "-c", "docker run"},
		{"echo", "ssh", "host"},
		words("rsync -a dir other"),
		words("git push"),
	} {
		if why, ok := f.Relay(argv); ok {
			t.Errorf("Relay(%q) = %q; want none", argv, why)
		}
	}
}

// TestSlow proves DESIGN 11, 7: tools that clean up get their ten seconds.
func TestSlow(t *testing.T) {
	f := &Facts{}
	for _, line := range []string{
		"git push origin main", "hg pull", "svn up", "apt-get install -y x", "sudo apt install x", "dpkg -i x.deb", "npm ci", "pnpm install",
		"yarn", "pip install x", "python3 -m pip install x", "uv sync", "uv pip install x", "cargo build", "brew install x", "psql -f x", "pg_dump db",
		"mysql db", "sqlite3 f.db", "redis-server", "terraform apply", "tofu apply", "pulumi up", "ansible-playbook p.yml", "helm upgrade x", "kubectl apply -f x",
		"/usr/bin/git -C dir gc", "env GIT_DIR=x git fetch", "docker build .", "go mod download",
	} {
		if why, ok := f.Slow(words(line)); !ok || why == "" {
			t.Errorf("Slow(%q) = %q, %v; want a reason", line, why, ok)
		}
	}
	for _, line := range []string{"node server.js", "npm run dev", "npx -y some-server", "uvx some-server", "uv run server.py", "cargo run", "go build ./...", "sleep 100", "docker ps"} {
		if why, ok := f.Slow(words(line)); ok {
			t.Errorf("Slow(%q) = %q; want none", line, why)
		}
	}
}

func TestServer(t *testing.T) {
	f := &Facts{}
	for line, want := range map[string]Restart{
		"npx -y @modelcontextprotocol/server-everything":                       RestartSafe,
		"npx -y @modelcontextprotocol/server-everything@2026.8.31 stdio":       RestartSafe,
		"npx @modelcontextprotocol/server-filesystem /tmp":                     RestartSafe,
		"uvx mcp-server-fetch":                                                 RestartSafe,
		"uvx --from mcp-server-git==1.0 mcp-server-git":                        RestartSafe,
		"python3 -m mcp-server-time":                                           RestartSafe,
		"node node_modules/@modelcontextprotocol/server-everything/dist/x.js":  RestartSafe,
		"npx -y @playwright/mcp@latest --headless":                             RestartStateful,
		"npx -y @modelcontextprotocol/server-memory":                           RestartStateful,
		"npx -y @modelcontextprotocol/server-sequential-thinking":              RestartStateful,
		"docker run -i mcp/unknown":                                            "",
		"node my-server.js":                                                    "",
		"npx -y @someone/server-everything":                                    "",
		"npm exec --package @modelcontextprotocol/server-everything -- server": RestartSafe,
	} {
		got, ok := f.Server(words(line))
		if got.Restart != want || ok != (want != "") {
			t.Errorf("Server(%q) = %+v, %v; want %q", line, got, ok, want)
		}
	}
}

// TestCommands shows what is seen in a command line.
func TestCommands(t *testing.T) {
	got := Commands([]string{"env", "A=1", "sudo", "-u", "me", "bash", "-c", `cd "/a b"; npx -y '@s/p@1' --flag 'x y' | tee log`})
	want := []Command{
		{Name: "env", Args: []string{"A=1", "sudo", "-u", "me", "bash", "-c", `cd "/a b"; npx -y '@s/p@1' --flag 'x y' | tee log`}},
		{Name: "sudo", Args: []string{"-u", "me", "bash", "-c", `cd "/a b"; npx -y '@s/p@1' --flag 'x y' | tee log`}},
		{Name: "bash", Args: []string{"-c", `cd "/a b"; npx -y '@s/p@1' --flag 'x y' | tee log`}},
		{Name: "cd", Args: []string{"/a b"}},
		{Name: "npx", Args: []string{"-y", "@s/p@1", "--flag", "x y"}},
		{Name: "@s/p", Args: []string{"--flag", "x y"}},
		{Name: "tee", Args: []string{"log"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Commands (-want +got):\n%s", diff)
	}
}

func override(t *testing.T, text string) (*Facts, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "peers.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return LoadFile(file, true)
}

// TestOverride: what the user says comes before what is built in.
func TestOverride(t *testing.T) {
	f, err := override(t, `
relays:
  - {command: [ssh], words: [localhost], relay: false}
  - {command: [my-relay], why: it is mine}
slow:
  - {command: [git], words: [status], slow: false}
spare:
  - {comm: ssh-agent, spare: false}
  - {comm: my-daemon, why: mine}
servers:
  - {package: ["@playwright/mcp"], restart: safe}
`)
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]bool{"ssh localhost x": false, "ssh far x": true, "my-relay": true} {
		if _, ok := f.Relay(words(line)); ok != want {
			t.Errorf("Relay(%q) = %v", line, ok)
		}
	}
	for line, want := range map[string]bool{"git status": false, "git push": true} {
		if _, ok := f.Slow(words(line)); ok != want {
			t.Errorf("Slow(%q) = %v", line, ok)
		}
	}
	seen := map[string]bool{}
	for _, r := range f.SpareRules() {
		seen[r.Comm] = true
	}
	if seen["ssh-agent"] || !seen["my-daemon"] || !seen["gpg-agent"] {
		t.Errorf("spare rules: ssh-agent %v (want off), my-daemon %v, gpg-agent %v", seen["ssh-agent"], seen["my-daemon"], seen["gpg-agent"])
	}
	if s, _ := f.Server(words("npx @playwright/mcp")); s.Restart != RestartSafe {
		t.Errorf("Server = %+v", s)
	}
}

// TestBadOverride: one clear line, and the built-in facts hold.
func TestBadOverride(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"unknown key":  {"relays:\n  - {comand: [x]}\n", `peers.yaml:2: unknown key "comand" (did you mean "command"?)`},
		"elsewhere":    {"servers:\n  - {command: [x]}\n", `peers.yaml:2: "command" is not a key here (`},
		"top level":    {"relay_list:\n  - {command: [x]}\n", `peers.yaml:1: unknown key "relay_list"`},
		"not yaml":     {"relays:\n  - [x\n", "peers.yaml:2: "},
		"wrong type":   {"relays: 7\n", "peers.yaml:1: "},
		"no command":   {"slow:\n  - {why: x}\n", "an entry without command"},
		"bad restart":  {"servers:\n  - {package: [x], restart: often}\n", `restart "often": want names, and restart: safe or stateful`},
		"bad pattern":  {"spare:\n  - {comm: \"[x\"}\n", `spare: comm "[x"`},
		"binary":       {"\x00\x01\x02", "peers.yaml"},
		"endless list": {"a: &a [*a]\n", "peers.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := override(t, c.text)
			if err == nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "only the built-in ones hold") {
				t.Errorf("error is %q, want one line with %q", err, c.want)
			}
			if _, ok := f.Relay(words("ssh host")); !ok {
				t.Error("the built-in facts do not hold")
			}
		})
	}
	if f, err := LoadFile(filepath.Join(t.TempDir(), "none.yaml"), false); err != nil || f == nil {
		t.Errorf("a missing default file is an error: %v", err)
	}
	if f, err := LoadFile(filepath.Join(t.TempDir(), "none.yaml"), true); err == nil || f == nil {
		t.Error("a missing named file is no error, or there are no facts")
	}
	if f, err := override(t, "# nothing yet\n"); err != nil || f == nil {
		t.Errorf("a file of comments: %v", err)
	}
}

// FuzzCommands: no command line, whoever wrote it, makes the questions panic
// or take long.
func FuzzCommands(f *testing.F) {
	f.Add("sh\x00-c\x00docker run 'x \"$(ssh y)\" \\")
	f.Add("npx\x00-p")
	f.Add("env\x00-S")
	f.Add("uvx\x00--from=\x00")
	f.Fuzz(func(t *testing.T, line string) {
		argv := strings.Split(line, "\x00")
		facts := &Facts{}
		facts.Relay(argv)
		facts.Slow(argv)
		facts.Server(argv)
	})
}

// BenchmarkParse is what a user's file costs at the start.
func BenchmarkParse(b *testing.B) {
	for name, text := range map[string][]byte{"relays": relaysYAML, "spare": spareYAML, "slow": slowYAML, "servers": serversYAML} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := parse(name, text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRelay is what each further question costs.
func BenchmarkRelay(b *testing.B) {
	argv := words("env A=1 npx -y @modelcontextprotocol/server-everything")
	f := &Facts{}
	for b.Loop() {
		f.Relay(argv)
	}
}
