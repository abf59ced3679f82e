package cli

type cancelCmd struct{}

// Run is being written.
func (cancelCmd) Run(env *Env) error { return exitErrorf(ExitFailed, "cancel: not written yet") }
