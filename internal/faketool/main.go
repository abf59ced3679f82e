package faketool

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"syscall"
	"time"
)

// Marker is the first argument that makes a process a fake.
const Marker = "faketool"

// maxLife bounds every fake, whatever its flags say: a test that fails must
// not leave a ticking process behind for ever.
const maxLife = 2 * time.Minute

// Exit codes of fakes. A fake that reached its deadline says so by its code.
const (
	exitUsage    = 2
	exitCrash    = 41
	exitLifeOver = 99
	exitTerm     = 143
)

// MaybeRun turns this process into a fake and exits when its first argument is
// [Marker]; otherwise it returns at once and changes nothing. Call it before
// flags are parsed.
func MaybeRun() {
	if len(os.Args) > 1 && os.Args[1] == Marker {
		leave(Main(os.Args[2:]))
	}
}

// Command returns the command line that runs this executable as a fake with
// the given arguments, for instance Command("server", "-deaf"). It works in
// binaries that call [MaybeRun].
func Command(args ...string) []string {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	return append([]string{self, Marker}, args...)
}

// Main runs one fake and returns its exit code. args[0] names the mode:
//
//	server   an MCP server on stdin and stdout
//	tick     a process that ticks into the witness
//	respawn  two processes that start each other again
//	spawn    starts another mode and leaves it alone (double fork)
//	relay    copies bytes between its own stdio and that of a command
func Main(args []string) int {
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "faketool: no mode given; want server, tick, respawn, spawn or relay")
		return exitUsage
	}
	modes := map[string]func([]string) int{
		"server":  runServer,
		"tick":    runTick,
		"respawn": runRespawn,
		"spawn":   runSpawn,
		"relay":   runRelay,
	}
	run, ok := modes[args[0]]
	if !ok {
		fmt.Fprintf(os.Stderr, "faketool: unknown mode %q; want server, tick, respawn, spawn or relay\n", args[0])
		return exitUsage
	}
	return run(args[1:])
}

// parse reads flags and reports whether the mode may go on.
func parse(fs *flag.FlagSet, args []string) (int, bool) {
	switch err := fs.Parse(args); {
	case err == nil:
		return 0, true
	case errors.Is(err, flag.ErrHelp):
		return 0, false
	default:
		return exitUsage, false
	}
}

// deadline is the absolute end of a process and of all its descendants.
type deadline struct {
	life  time.Duration // wish of the command line, counted from the start
	until int64         // unix nanoseconds, inherited; 0 = none yet
}

func (d *deadline) flags(fs *flag.FlagSet) {
	fs.DurationVar(&d.life, "life", maxLife, "ends by itself after this time (at most 2m)")
	fs.Int64Var(&d.until, "until", 0, "ends by itself at this unix time in nanoseconds")
}

// arm fixes the end and starts the timer that enforces it. The timer calls
// os.Exit, so nothing that hangs elsewhere can hold the process.
func (d *deadline) arm() {
	end := time.Now().Add(min(d.life, maxLife))
	if d.until > 0 && time.Unix(0, d.until).Before(end) {
		end = time.Unix(0, d.until)
	}
	d.until = end.UnixNano()
	time.AfterFunc(time.Until(end), func() { leave(exitLifeOver) })
}

// arg hands the deadline down to a child.
func (d *deadline) arg() string { return fmt.Sprintf("-until=%d", d.until) }

// leave ends the process without the race detector's farewell, which sleeps a
// second in each test binary and would make every fake look slow to die.
func leave(code int) { syscall.Exit(code) }
