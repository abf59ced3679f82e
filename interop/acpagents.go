package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/belayhq/belay/internal/pinned"
)

// acpAgent is a real coding agent: how it is started so that it needs nobody
// but the model on loopback, and how it is told to ask, or not, before it runs
// a command.
type acpAgent struct {
	key     string // folder of its pins, and name for -agents
	v2      bool   // speaks version 2 too
	program string // below node_modules
	args    []string
	native  bool // the program is no script
	inCI    bool // see acpSelected

	// settings writes the agent's files and returns its environment.
	settings func(place acpPlace, ask bool) (env []string, err error)
	// free and ask are the modes in which it asks for nothing, and for each
	// command; "": settings did it.
	free, ask string
}

// acpPlace is where one session of an agent lives.
type acpPlace struct {
	home  string // empty, the agent's own
	work  string // an empty git repository
	model string // URL of the model
}

// acpAgents is section 8 of the agents' sheet as data.
var acpAgents = []acpAgent{
	{
		key: "claude", v2: true, program: "@agentclientprotocol/claude-agent-acp/dist/index.js",
		settings: func(p acpPlace, _ bool) ([]string, error) {
			return []string{
				"CLAUDE_CONFIG_DIR=" + filepath.Join(p.home, ".claude"), "ANTHROPIC_BASE_URL=" + p.model, "ANTHROPIC_API_KEY=x",
				"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_TELEMETRY=1", "DISABLE_AUTOUPDATER=1",
				"DISABLE_ERROR_REPORTING=1", "ENABLE_TOOL_SEARCH=false",
				"IS_SANDBOX=1", // as root it would refuse the mode that asks for nothing
			}, nil
		},
		free: "bypassPermissions", ask: "default",
	},
	{
		key: "codex", v2: true, inCI: true, program: "@agentclientprotocol/codex-acp/dist/index.js",
		settings: func(p acpPlace, ask bool) ([]string, error) {
			policy := "never"
			if ask {
				policy = "on-request"
			}
			config := "model = \"mock\"\nmodel_provider = \"mock\"\napproval_policy = " + strconv.Quote(policy) +
				"\nsandbox_mode = \"danger-full-access\"\ncheck_for_update_on_startup = false\n" +
				"[model_providers.mock]\nname = \"mock\"\nbase_url = " + strconv.Quote(p.model+"/v1") +
				"\nwire_api = \"responses\"\nenv_key = \"MOCK_KEY\"\nrequest_max_retries = 0\nstream_max_retries = 0\n" +
				"[analytics]\nenabled = false\n[projects." + strconv.Quote(p.work) + "]\ntrust_level = \"trusted\"\n"
			return []string{"CODEX_HOME=" + p.home, "OPENAI_API_KEY=x", "MOCK_KEY=x"},
				os.WriteFile(filepath.Join(p.home, "config.toml"), []byte(config), 0o600)
		},
		free: "agent-full-access", ask: "read-only",
	},
	{
		key: "gemini", inCI: true, program: "@google/gemini-cli/bundle/gemini.js", args: []string{"--acp", "-m", "gemini-2.5-pro"},
		settings: func(p acpPlace, _ bool) ([]string, error) {
			off := func(name string) map[string]bool { return map[string]bool{name: false} }
			env := []string{
				"GEMINI_API_KEY=x", "GOOGLE_GEMINI_BASE_URL=" + p.model, "GEMINI_CLI_TRUST_WORKSPACE=true",
				"GEMINI_TELEMETRY_ENABLED=false", "NO_BROWSER=1",
			}
			return env, writeJSON(filepath.Join(p.home, ".gemini", "settings.json"), map[string]any{
				"security":  map[string]any{"auth": map[string]string{"selectedType": "gemini-api-key"}},
				"privacy":   off("usageStatisticsEnabled"),
				"general":   off("enableAutoUpdate"),
				"telemetry": off("enabled"),
				"ide":       off("enabled"),
			})
		},
		free: "yolo", ask: "default",
	},
	{
		key: "opencode", program: "opencode-" + runtime.GOOS + "-" + npmCPU() + "/bin/opencode", args: []string{"acp"}, native: true,
		settings: func(p acpPlace, ask bool) ([]string, error) {
			bash := "allow"
			if ask {
				bash = "ask"
			}
			env := []string{
				"OPENCODE_CONFIG=" + filepath.Join(p.home, "opencode.json"),
				"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1",
			}
			for _, kind := range []string{"CONFIG", "DATA", "CACHE", "STATE"} {
				env = append(env, "XDG_"+kind+"_HOME="+filepath.Join(p.home, "xdg", strings.ToLower(kind)))
			}
			return env, writeJSON(filepath.Join(p.home, "opencode.json"), map[string]any{
				"autoupdate": false, "share": "disabled", "model": "mock/mock", "small_model": "mock/mock",
				"permission": map[string]string{"bash": bash, "edit": "allow"},
				"provider": map[string]any{"mock": map[string]any{
					"npm": "@ai-sdk/openai-compatible", "name": "Mock",
					"options": map[string]string{"baseURL": p.model + "/v1", "apiKey": "x"},
					"models": map[string]any{"mock": map[string]any{
						"name": "mock", "tool_call": true, "limit": map[string]int{"context": 100_000, "output": 4096},
					}},
				}},
			})
		},
	},
}

func writeJSON(path string, value any) error {
	raw, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, raw, 0o600)
}

// npmCPU is the name that packages of npm have for this processor.
func npmCPU() string {
	if runtime.GOARCH == "amd64" {
		return "x64"
	}
	return runtime.GOARCH
}

// acpNodeMajor is the oldest Node that all of the agents run on.
const acpNodeMajor = 22

// installACP brings the agents into the cache, each by itself, and a Node if the
// machine's is too old. What it cannot get it notes.
func (p *peers) installACP(cache string, agents []acpAgent) (ready []acpAgent) {
	node, err := newNode(filepath.Join(cache, "acp-node"))
	if err != nil {
		p.miss("Node "+strconv.Itoa(acpNodeMajor)+" for the agents", err)
	}
	p.acpNode = node
	for _, a := range agents {
		if node == "" && !a.native {
			continue
		}
		dir := filepath.Join(cache, "acp-"+a.key)
		err := pinned.Install(peerFiles, "peers/acp-agents/"+a.key, dir, pinned.NPM())
		if err == nil {
			_, err = os.Stat(filepath.Join(dir, "node_modules", a.program)) // there may be no package for this platform
		}
		if err != nil {
			p.miss("agent "+a.key, err)
			continue
		}
		ready = append(ready, a)
	}
	return ready
}

// newNode is a Node that is new enough: the machine's, or one from npm.
func newNode(dir string) (string, error) {
	if path, err := exec.LookPath("node"); err == nil {
		if out, err := exec.Command(path, "--version").Output(); err == nil && nodeMajor(string(out)) >= acpNodeMajor {
			return path, nil
		}
	}
	if err := pinned.Install(peerFiles, "peers/acp-agents/node", dir, pinned.NPM()); err != nil {
		return "", err
	}
	path := pinned.Node(dir)
	if path == "" {
		return "", fmt.Errorf("no package of Node for %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	return path, nil
}

// nodeMajor reads what `node --version` prints; 0: not that.
func nodeMajor(version string) int {
	major, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(version), "v"), ".")
	n, err := strconv.Atoi(major)
	if err != nil {
		return 0
	}
	return n
}

// command is the agent's command line.
func (a acpAgent) command(p *peers, cache string) []string {
	program := filepath.Join(cache, "acp-"+a.key, "node_modules", filepath.FromSlash(a.program))
	argv := []string{program}
	if !a.native {
		argv = []string{p.acpNode, program}
	}
	return append(argv, a.args...)
}

// pin is the package and version of the agent, as its pins name it.
func (a acpAgent) pin() string {
	var file struct {
		Dependencies         map[string]string `json:"dependencies"`
		OptionalDependencies map[string]string `json:"optionalDependencies"`
	}
	raw, err := peerFiles.ReadFile("peers/acp-agents/" + a.key + "/package.json")
	if err != nil || json.Unmarshal(raw, &file) != nil {
		return a.key
	}
	for _, list := range []map[string]string{file.Dependencies, file.OptionalDependencies} {
		for name, version := range list {
			return name + " " + version
		}
	}
	return a.key
}
