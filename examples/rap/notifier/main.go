// Command notifier is for runtimes that are written in something else: it tells all
// their tool servers that a call was cancelled, at the same time, two seconds each,
// once.
//
//	TOKEN=… notifier THREAD CALL BASE…
//
// It prints what came of each. Whether a call has really ended no server says.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/belayhq/belay/rap"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: notifier THREAD CALL BASE…")
		os.Exit(2)
	}
	if err := notify(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "notifier:", err)
		os.Exit(1)
	}
}

func notify(thread, call string, bases []string) error {
	var o rap.NotifierOptions
	for _, base := range bases {
		o.Targets = append(o.Targets, rap.Target{Base: base, Sign: rap.BearerToken(os.Getenv("TOKEN"))})
	}
	n, err := rap.NewNotifier(o)
	if err != nil {
		return err
	}
	told := make(chan rap.Told, len(bases)) // reports come from goroutines of their own
	err = n.Cancel(rap.CancelNotice{ThreadID: thread, ToolCallID: call}, func(t rap.Told) { told <- t })
	if err != nil {
		return err
	}
	// The program that presses Stop goes on here; only this one waits.
	for range bases {
		t := <-told
		fmt.Println(t.String())
	}
	return n.Close(context.Background())
}
