package cli

type statusCmd struct{}

// Run is being written.
func (statusCmd) Run(env *Env) error { return exitErrorf(ExitFailed, "status: not written yet") }
