package node

import "testing"

func TestStateDir(t *testing.T) {
	for _, c := range []struct {
		system string
		env    map[string]string
		want   string
	}{
		{"linux", map[string]string{"HOME": "/home/ann"}, "/home/ann/.local/state/belay"},
		{"linux", map[string]string{"HOME": "/home/ann", "XDG_STATE_HOME": "/s"}, "/s/belay"},
		{"linux", map[string]string{"HOME": "/home/ann", "XDG_STATE_HOME": "s"}, "/home/ann/.local/state/belay"},
		{"linux", map[string]string{"HOME": "/home/ann", EnvStateDir: "/b"}, "/b"},
		{"darwin", map[string]string{"HOME": "/Users/ann"}, "/Users/ann/Library/Application Support/belay"},
		{"linux", nil, ""},
		{"windows", nil, ""},
	} {
		if got := stateDir(c.system, func(name string) string { return c.env[name] }); got != c.want {
			t.Errorf("%s %v: %q, want %q", c.system, c.env, got, c.want)
		}
	}
}
