package cli

type psCmd struct{}

// Run is being written.
func (psCmd) Run(env *Env) error { return exitErrorf(ExitFailed, "ps: not written yet") }
