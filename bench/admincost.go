package main

import "fmt"

// moreRounds makes the rounds of what has a bar of five percent, which a busy
// moment is more than.
const moreRounds = 3

// callCosts measures a call through belay serve with everything on (a token to
// check, a ledger, metrics) beside one with all of it off, in both eras.
func (b *bench) callCosts() error {
	b.rounds *= moreRounds
	defer func() { b.rounds /= moreRounds }()
	for _, s := range []webScene{
		{name: "everything on, HTTP -> lean stdio", stdio: true, fake: true},
		{name: "everything on, HTTP -> HTTP"},
	} {
		for _, era := range []string{eraLegacy, eraModern} {
			one := s
			one.name, one.era, one.ways = s.name+" "+era, era, b.costWays
			err := b.webCalls(&one,
				func(r *row) { judgePaired(r, plain, -1, 1.05) },
				func(r *row) { judgePaired(r, plain, 1, 0.95) },
				func(*peers[*web]) error { return nil })
			if err != nil {
				b.report.failed(one.name, err)
			}
		}
	}
	return nil
}

// judgePaired compares with another way, round by round; sign is 1 where more is
// better. What the machine does meanwhile is in both of a round.
func judgePaired(r *row, beside string, sign, factor float64) {
	var ratios []float64
	for n, v := range r.values[beside] {
		if n < len(r.values["belay"]) {
			ratios = append(ratios, r.values["belay"][n]/v)
		}
	}
	ratio := median(ratios)
	word := "<="
	if sign > 0 {
		word = ">="
	}
	r.bar = fmt.Sprintf("%s %g x the %s", word, factor, beside)
	r.say("%.3f of %s (the median of the rounds' ratios)", ratio, beside)
	r.judge(sign*ratio >= sign*factor)
}

// costWays are the server itself, Belay with everything off, and with everything
// on.
func (b *bench) costWays(s *webScene, url string, _ *peers[*web]) []webWay {
	start := func(settings map[string]any) func() (*service, error) {
		return func() (*service, error) {
			if s.stdio {
				return b.belayServe(b.command(s, "belay"), "", settings)
			}
			return b.belayServe(nil, url, settings)
		}
	}
	off := map[string]any{"enabled": false}
	people, on := newHousehold()
	return []webWay{
		{name: "direct", url: url},
		{name: plain, start: start(map[string]any{"ledger": off, "metrics": off, "traces": off})},
		{name: "belay", start: start(on), token: people.user},
	}
}
