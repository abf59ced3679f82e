package faketool

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"time"
)

// maxGenerations bounds a respawning pair: enough to outlive any sweep that
// kills one process at a time, not enough to fill a machine.
const maxGenerations = 400

// helper is what all helper modes share.
type helper struct {
	deadline
	witness string
	key     string
	ms      int
	deaf    bool
	wit     *witnessWriter
}

func (h *helper) flags(fs *flag.FlagSet) {
	h.deadline.flags(fs)
	fs.StringVar(&h.witness, "witness", "", "witness file (default $"+WitnessEnv+")")
	fs.StringVar(&h.key, "key", "helper", "key of the witness lines")
	fs.IntVar(&h.ms, "ms", 20, "milliseconds between ticks")
	fs.BoolVar(&h.deaf, "deaf-term", false, "ignore SIGTERM, SIGINT and SIGHUP")
}

// begin arms the deadline, opens the witness and sets up the signals.
func (h *helper) begin() error {
	h.arm()
	wit, err := newWitnessWriter(h.witness)
	if err != nil {
		return err
	}
	h.wit = wit
	if h.deaf {
		// Notify and drop instead of Ignore: an ignored signal is inherited
		// through exec, a handled one is not, and only this process is deaf.
		got := make(chan os.Signal, 8)
		signal.Notify(got, termSignals...)
		go func() {
			for sig := range got {
				h.wit.write(h.key, "sigterm", sig.String())
			}
		}()
	}
	return nil
}

// args are the flags a helper hands to a child of the same kind.
func (h *helper) args() []string {
	args := []string{h.arg(), "-witness=" + h.wit.path, "-key=" + h.key, fmt.Sprintf("-ms=%d", h.ms)}
	if h.deaf {
		args = append(args, "-deaf-term")
	}
	return args
}

// runTick ticks n times and exits with a code of choice: a child of a tool, or
// a whole command for exec.
func runTick(args []string) int {
	var h helper
	fs := flag.NewFlagSet("faketool tick", flag.ContinueOnError)
	h.flags(fs)
	n := fs.Int("n", 1<<30, "number of ticks")
	code := fs.Int("exit", 0, "exit code after the last tick")
	show := fs.Bool("print", false, "print each tick on stdout too")
	busy := fs.Bool("busy", false, "burn processor time between ticks")
	fork := fs.String("fork", "", "start one helper of this kind first: "+forkKinds)
	clean := fs.Duration("clean", 0, "on SIGTERM: clean up for this long, say so, exit 143")
	if code, ok := parse(fs, args); !ok {
		return code
	}
	if err := h.begin(); err != nil {
		fmt.Fprintln(os.Stderr, "faketool tick:", err)
		return 1
	}
	if *clean > 0 {
		cleanUpOnTerm(h.wit, h.key, *clean)
	}
	h.wit.write(h.key, "start", "")
	if *fork != "" {
		if err := startHelper(*fork, h.key, h.ms, h.wit.path, &h.deadline); err != nil {
			fmt.Fprintln(os.Stderr, "faketool tick:", err)
			return 1
		}
	}
	for i := 1; i <= *n; i++ {
		pause(context.Background(), time.Duration(h.ms)*time.Millisecond, *busy)
		h.wit.write(h.key, "tick", fmt.Sprint(i))
		if *show {
			fmt.Println("tick", i)
		}
	}
	h.wit.write(h.key, "done", "")
	return *code
}

// cleanUpOnTerm makes the process a tool that needs time to end well.
func cleanUpOnTerm(wit *witnessWriter, key string, need time.Duration) {
	got := make(chan os.Signal, 1)
	signal.Notify(got, termSignals...)
	go func() {
		sig := <-got
		wit.write(key, "sigterm", sig.String())
		time.Sleep(need)
		wit.write(key, "cleaned", "")
		leave(exitTerm)
	}()
}

// runSpawn starts another mode and ends, so that the child loses its parent:
// the second half of a double fork.
func runSpawn(args []string) int {
	fs := flag.NewFlagSet("faketool spawn", flag.ContinueOnError)
	setsid := fs.Bool("setsid", false, "start it in a session of its own")
	clean := fs.Bool("clean-env", false, "start it with an empty environment")
	if code, ok := parse(fs, args); !ok {
		return code
	}
	if err := startDetached(fs.Args(), *setsid, *clean); err != nil {
		fmt.Fprintln(os.Stderr, "faketool spawn:", err)
		return 1
	}
	return 0
}

// startDetached starts a fake without stdio of ours: a helper that held the
// server's stdout would keep the pipe open after the server is gone, which is
// one of the cases, but never by accident.
func startDetached(args []string, setsid, cleanEnv bool) error {
	argv := Command(args...)
	cmd := exec.Command(argv[0], argv[1:]...)
	if setsid {
		detach(cmd)
	}
	if cleanEnv {
		cmd.Env = []string{} // empty, not nil: nil would inherit
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start helper: %w", err)
	}
	go func() { _ = cmd.Wait() }() // ends with the child or with this process
	return nil
}

// runRespawn is one half of a pair. The primary starts its partner with a pipe
// from itself; whoever of the two sees the other die starts it again.
func runRespawn(args []string) int {
	var h helper
	fs := flag.NewFlagSet("faketool respawn", flag.ContinueOnError)
	h.flags(fs)
	gen := fs.Int("gen", 0, "generation")
	partner := fs.Bool("partner", false, "stdin is a pipe from the primary")
	if code, ok := parse(fs, args); !ok {
		return code
	}
	if err := h.begin(); err != nil {
		fmt.Fprintln(os.Stderr, "faketool respawn:", err)
		return 1
	}
	h.wit.write(h.key, "start", fmt.Sprintf("generation %d", *gen))
	go func() {
		for i := 1; ; i++ {
			time.Sleep(time.Duration(h.ms) * time.Millisecond)
			h.wit.write(h.key, "tick", fmt.Sprint(i))
		}
	}()
	if *partner {
		_, _ = io.Copy(io.Discard, os.Stdin) // returns when the primary is dead
	}
	for *gen++; *gen < maxGenerations; *gen++ {
		if err := h.runPartner(*gen); err != nil {
			fmt.Fprintln(os.Stderr, "faketool respawn:", err)
			return 1
		}
	}
	return 1
}

// runPartner starts a partner and returns when it is dead.
func (h *helper) runPartner(gen int) error {
	argv := Command(append([]string{"respawn", "-partner", fmt.Sprintf("-gen=%d", gen)}, h.args()...)...)
	cmd := exec.Command(argv[0], argv[1:]...)
	detach(cmd)
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer pipe.Close()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start partner: %w", err)
	}
	_ = cmd.Wait()
	return nil
}

// runRelay copies bytes between its own stdio and a command's: the least that
// any process in the middle must cost. The benchmark compares with it.
func runRelay(args []string) int {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "faketool relay: no command given")
		return exitUsage
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil || cmd.Start() != nil {
		fmt.Fprintln(os.Stderr, "faketool relay: cannot start", args[0])
		return 1
	}
	go func() {
		copyPlain(in, os.Stdin)
		_ = in.Close()
	}()
	copyPlain(os.Stdout, out)
	_ = cmd.Wait()
	return 0
}

// copyPlain copies with one 64 KiB buffer and plain reads and writes. io.Copy
// would use splice between pipes, which no proxy that reads a message can.
func copyPlain(dst io.Writer, src io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if _, werr := dst.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
