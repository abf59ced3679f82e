//go:build unix

package acceptance

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/internal/need"
)

// program is the built belay.
var program string

func TestMain(m *testing.M) {
	faketool.MaybeRun()                // never returns in a tool
	rapChild()                         // nor in a tool server
	_ = flag.Set("test.parallel", "8") // most of the time of a test is somebody's grace period
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "belay-acceptance-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "belay")
	build := exec.Command("go", slices.Concat([]string{"build"}, need.BuildFlags(), []string{"-o", program, "github.com/belayhq/belay/cmd/belay"})...)
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "belay cannot be built: %v\n%s", err, out)
		return 1
	}
	code := m.Run()
	for _, s := range shared {
		if err := s.end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	http.DefaultClient.CloseIdleConnections()
	web.CloseIdleConnections()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
