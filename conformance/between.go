package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// betweenMarker makes this program the client that the suite starts.
const betweenMarker = "-between"

// scenarioVariable is where the suite tells its client what is tested.
const scenarioVariable = "MCP_CONFORMANCE_SCENARIO"

// betweenCommand is the suite's --command with Belay in between. The suite
// appends the URL of its server.
func betweenCommand(belay, client, dir string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	argv := []string{self, betweenMarker, belay, client, dir}
	for _, arg := range argv {
		if strings.ContainsAny(arg, " \t'\"\\$") {
			return "", fmt.Errorf("the suite takes its client as one line, and %q cannot be in it", arg)
		}
	}
	return strings.Join(argv, " "), nil
}

// between runs the client against a Belay in front of the suite's server, and
// ends with its exit code.
func between(args []string) int {
	if len(args) != 4 {
		fmt.Fprintf(os.Stderr, "conformance %s: want BELAY CLIENT DIR URL, got %q\n", betweenMarker, args)
		return 2
	}
	belay, client, dir, url := args[0], args[1], args[2], args[3]
	scenario := os.Getenv(scenarioVariable)
	if !pastBelay(scenario) {
		p, err := startBelay(belay, map[string]any{"url": url}, filepath.Join(dir, "belay-"+filepath.Base(scenario)))
		if err != nil {
			fmt.Fprintln(os.Stderr, "conformance:", err)
			return 1
		}
		defer p.end()
		url = p.url
	}
	cmd := exec.Command(client, url) //nolint:gosec // what the harness put into the suite's command
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		return 1
	}
	return cmd.ProcessState.ExitCode()
}
