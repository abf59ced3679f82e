package cli

// commands is the grammar of the command line: one field, one command. The
// order is the order of the help.
type commands struct {
	Wrap      wrapCmd      `cmd:"" group:"run" help:"Put an MCP server on stdio under Belay."`
	ACP       acpCmd       `cmd:"" name:"acp" group:"run" help:"Put an agent that speaks ACP under Belay, for any editor."`
	Exec      execCmd      `cmd:"" group:"run" help:"Run any command, with everything it starts, under Belay."`
	Serve     serveCmd     `cmd:"" group:"run" help:"Serve MCP servers over HTTP under Belay."`
	Adopt     adoptCmd     `cmd:"" group:"run" help:"Put the MCP servers of an editor under Belay, or take them out again."`
	Ps        psCmd        `cmd:"" group:"stop" help:"List what is running."`
	Status    statusCmd    `cmd:"" group:"stop" help:"Show everything about one run, and its receipt."`
	Cancel    cancelCmd    `cmd:"" group:"stop" help:"Stop runs, and say what proves that they stopped."`
	Receipts  receiptsCmd  `cmd:"" group:"stop" help:"Show what was stopped, and what proves it; also when nothing runs."`
	Latch     latchCmd     `cmd:"" group:"stop" help:"Stop everything on a server, and refuse new calls until it is lifted."`
	Approvals approvalsCmd `cmd:"" group:"stop" help:"Answer runs that ask a person before they go on."`
	Tool      toolCmd      `cmd:"" group:"more" help:"Write scripted tools: new, run, check, types."`
	Profile   profileCmd   `cmd:"" group:"more" help:"Keep servers under names."`
	Token     tokenCmd     `cmd:"" group:"more" help:"Print your own token, or make one for somebody else."`
	Demo      demoCmd      `cmd:"" group:"more" help:"Press Stop on real processes, without Belay and with it."`
	Version   versionCmd   `cmd:"" group:"more" help:"Print the version."`

	ScriptCheck  scriptCheckCmd  `cmd:"" hidden:"" name:"script-check" help:"Check one scripted tool; for Belay itself."`
	ScriptWorker scriptWorkerCmd `cmd:"" hidden:"" name:"script-worker" help:"Serve scripted tools on standard input and output; for Belay itself."`
}
