package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/belayhq/belay/internal/faketool"
)

// way is one of the three connections that are compared.
type way struct {
	name string
	wrap func(server []string) []string
}

// ways returns direct, relay and, if there is a binary, belay. flags go to
// `belay wrap`.
func (b *bench) ways(flags ...string) []way {
	list := []way{
		{"direct", func(s []string) []string { return s }},
		{"relay", func(s []string) []string { return append(faketool.Command("relay", "--"), s...) }},
	}
	if b.belay != "" {
		list = append(list, b.belayWay(flags...))
	}
	return list
}

func (b *bench) belayWay(flags ...string) way {
	return way{"belay", func(s []string) []string {
		argv := append([]string{b.belay, "wrap"}, flags...)
		return append(append(argv, "--"), s...)
	}}
}

// server is the command line of a fake server; the witness lies in the scratch
// directory under this name.
func (b *bench) server(witness string, flags ...string) []string {
	args := []string{"server", "-strict=false"}
	if witness != "" {
		args = append(args, "-witness="+filepath.Join(b.dir, witness))
	}
	return faketool.Command(append(args, flags...)...)
}

func (b *bench) witness(name string) *faketool.Witness {
	return faketool.NewWitness(filepath.Join(b.dir, name))
}

// env keeps this run's Belay processes apart from the user's own.
func (b *bench) env() []string {
	return []string{"BELAY_RUNTIME_DIR=" + filepath.Join(b.dir, "run"), "BELAY_STATE_DIR=" + filepath.Join(b.dir, "state")}
}

// client is one open way to a server.
type client interface {
	// call makes one call and waits for its answer.
	call(tool, args string) (time.Duration, error)
	// pump makes so many calls with 64 in flight.
	pump(calls int) (time.Duration, error)
	// root is the process in the middle with all below it; 0: there is none.
	root() int
	close() error
}

// peers holds one open connection for each way.
type peers[C client] struct {
	names []string
	open  map[string]C
	said  []string // why a way is missing
}

// connect opens every way to its own fake server.
func (b *bench) connect(ways []way, witness string, flags ...string) (*peers[*peer], error) {
	ps := &peers[*peer]{open: map[string]*peer{}}
	for _, w := range ways {
		name := ""
		if witness != "" {
			name = witness + "-" + w.name
		}
		p, err := openPeer(w.wrap(b.server(name, flags...)), b.env())
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connect %s: %w", w.name, err), ps.close())
		}
		ps.add(w.name, p)
	}
	return ps, nil
}

func (ps *peers[C]) add(name string, c C) {
	ps.names = append(ps.names, name)
	ps.open[name] = c
}

// drop leaves a way out of what follows.
func (ps *peers[C]) drop(name string, why error) {
	ps.said = append(ps.said, fmt.Sprintf("%s: %.120v", name, why))
	ps.names = slices.DeleteFunc(ps.names, func(n string) bool { return n == name })
}

func (ps *peers[C]) close() error {
	var errs []error
	for _, c := range ps.open {
		errs = append(errs, c.close())
	}
	return errors.Join(errs...)
}

// each runs f for every way, rounds times, interleaved, and returns the values
// by way. Other people's gateways that fail are left out from there on.
func (ps *peers[C]) each(rounds int, f func(name string, c C) (float64, error)) (map[string][]float64, error) {
	values := map[string][]float64{}
	for range rounds {
		for _, name := range slices.Clone(ps.names) {
			v, err := f(name, ps.open[name])
			if err != nil && slices.Contains(gatewayNames, name) {
				ps.drop(name, err)
				delete(values, name)
				continue
			}
			if err != nil {
				return values, fmt.Errorf("%s: %w", name, err)
			}
			values[name] = append(values[name], v)
		}
	}
	return values, nil
}
