package peers

import "github.com/belayhq/belay/proc"

// Sparing returns facts that also spare the processes of these rules, before
// all others.
func (f *Facts) Sparing(rules []proc.SpareRule) *Facts {
	if len(rules) == 0 {
		return f
	}
	with := *f
	with.user.Spare = make([]spare, 0, len(rules)+len(f.user.Spare))
	for _, r := range rules {
		with.user.Spare = append(with.user.Spare, spare{Comm: r.Comm, Args: r.Args, NotArgs: r.NotArgs, Why: r.Why})
	}
	with.user.Spare = append(with.user.Spare, f.user.Spare...)
	return &with
}
