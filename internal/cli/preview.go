package cli

import (
	"fmt"
	"strings"
)

type previewCmd struct{ questionFlags }

// Help implements kong.HelpProvider.
func (*previewCmd) Help() string {
	return `Some questions offer a look at what would happen: the files that would go, the changes as a diff. It is made at the moment when you ask, and
decides nothing.`
}

// Run prints the preview as it is.
func (c *previewCmd) Run(env *Env) error {
	ctx, stop := interruptible()
	defer stop()
	id, at, err := c.find(ctx, env)
	if err != nil {
		return err
	}
	var text string
	if at == nil {
		text, err = env.mesh().Preview(ctx, id)
	} else {
		text, err = at.client.Preview(ctx, id)
	}
	switch {
	case err != nil:
		return refused(ctx, at, err)
	case text == "":
		env.Warnf("there is nothing to see")
		return nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		cells := strings.Split(line, "\t") // it may be code
		for i := range cells {
			cells[i] = oneLine(cells[i])
		}
		if _, err := fmt.Fprintln(env.Stdout, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return nil
}
