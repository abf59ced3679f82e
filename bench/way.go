package main

import (
	"errors"
	"fmt"
	"path/filepath"

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
func (b *bench) env() []string { return []string{"BELAY_RUNTIME_DIR=" + filepath.Join(b.dir, "run")} }

// peers holds one open connection for each way.
type peers struct {
	names []string
	open  map[string]*peer
}

// connect opens every way to its own fake server.
func (b *bench) connect(ways []way, witness string, flags ...string) (*peers, error) {
	ps := &peers{open: map[string]*peer{}}
	for _, w := range ways {
		name := ""
		if witness != "" {
			name = witness + "-" + w.name
		}
		p, err := openPeer(w.wrap(b.server(name, flags...)), b.env())
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connect %s: %w", w.name, err), ps.close())
		}
		ps.names = append(ps.names, w.name)
		ps.open[w.name] = p
	}
	return ps, nil
}

func (ps *peers) close() error {
	var errs []error
	for _, name := range ps.names {
		errs = append(errs, ps.open[name].close())
	}
	return errors.Join(errs...)
}

// each runs f for every way, rounds times, interleaved, and returns the values
// by way.
func (ps *peers) each(rounds int, f func(name string, p *peer) (float64, error)) (map[string][]float64, error) {
	values := map[string][]float64{}
	for range rounds {
		for _, name := range ps.names {
			v, err := f(name, ps.open[name])
			if err != nil {
				return values, fmt.Errorf("%s: %w", name, err)
			}
			values[name] = append(values[name], v)
		}
	}
	return values, nil
}
