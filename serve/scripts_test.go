package serve

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/gateway"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/internal/memcap"
	"github.com/belayhq/belay/proc"
	"github.com/belayhq/belay/script"
)

// TestAT36_Gateway: a server of scripts is one on stdio, whose workers are forced and
// replaced whatever anybody says, and whose memory has a bound.
func TestAT36_Gateway(t *testing.T) {
	t.Parallel()
	tree := belay.NewTree(belay.Options{})
	defer tree.Close(t.Context())
	s, err := config.CompleteScripts(config.Server{
		Name: "tools",
		Tools: map[string]config.ToolPolicy{
			"slow": {Grace: config.Some(10 * time.Second), Enforce: config.Some("never")},
		},
		Scripts: &config.Scripts{Dirs: []string{"/tools", "--odd"}, AllowHosts: []string{"a.example"}, EditorRoot: "/work"},
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := Gateway(Options{Tree: tree, Log: slog.New(slog.DiscardHandler), Worker: []string{"belay", "script-worker"}}, Definition{Server: s})
	if err != nil {
		t.Fatal(err)
	}
	if c.Enforce != gateway.EnforceStrict || c.Tools["slow"].Enforce != gateway.EnforceStrict || !c.RestartSafe || !c.Asks ||
		c.Isolation != gateway.IsolationCall || c.Spares != 4 || c.AtOnce != 8 || c.Memory <= 256<<20 || c.IdleMemory != 128<<20 {
		t.Errorf("%+v", c)
	}
	line := strings.Join(c.Command, " ")
	for _, want := range []string{
		"belay script-worker --grace 2s --kill-after 5s", "--memory 268435456B", "--tool-grace slow=10s --tool-kill-after slow=13s",
		"--allow-host a.example", "--editor-root /work",
	} {
		if !strings.Contains(line, want) {
			t.Errorf("%q is not in %q", want, line)
		}
	}
	if strings.Contains(line, "--auto-approve") || strings.Contains(line, "--editor-write") {
		t.Errorf("more is granted than was said: %q", line)
	}
	if tail := c.Command[slices.Index(c.Command, "--"):]; !slices.Equal(tail, []string{"--", "/tools", "--odd"}) {
		t.Errorf("folders are %q", tail)
	}
	if got := c.Epitaph(gateway.Death{Exit: proc.Exit{Code: memcap.ExitCode}}); got != script.TextMemory {
		t.Errorf("out of memory: %q", got)
	}
	if got := c.Epitaph(gateway.Death{Exit: proc.Exit{Code: 1}}); got != "" {
		t.Errorf("another death: %q", got)
	}
	if _, err := Gateway(Options{Tree: tree}, Definition{Server: config.New("x", config.Policy{})}); !errors.Is(err, ErrDefinition) {
		t.Errorf("a server without scripts: %v", err)
	}
}
