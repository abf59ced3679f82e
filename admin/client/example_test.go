package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/admin"
	"github.com/belayhq/belay/admin/client"
	"github.com/belayhq/belay/lease"
)

// serveExample is a server with a tree, for the examples.
func serveExample() (url string, tree *belay.Tree, end func()) {
	tree = belay.NewTree(belay.Options{})
	leases := lease.New(tree, lease.Options{})
	api, err := admin.New(admin.Options{Control: tree, Authorizer: everybody, Leases: leases, Approvals: tree})
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(api)
	return server.URL, tree, func() {
		api.Close()
		server.CloseClientConnections()
		server.Close()
		ctx, done := context.WithTimeoutCause(context.Background(), time.Second, errors.New("the example is over"))
		defer done()
		_ = tree.Close(ctx)
		leases.Close()
	}
}

// A person's Stop, from anywhere: wait for what proves it.
func ExampleClient_Cancel() {
	url, tree, end := serveExample()
	defer end()
	run, _ := tree.Register(belay.Spec{Kind: belay.KindCall, Name: "build", Owner: "ann", Stopper: &stopper{}})

	ctx := context.Background()
	c, err := client.New(client.Options{Server: url, Token: "op-token"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.CloseIdle()
	results, err := c.Cancel(ctx, belay.CancelRequest{
		Filter:       belay.Filter{IDs: []belay.RunID{run.ID()}},
		Cancellation: belay.Cancellation{Reason: "wrong branch"},
		Wait:         -1, // until the verdict is final
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range results {
		fmt.Println(r.Run.Name, r.Receipt.Verdict, "because:", r.Receipt.Cancellation.Reason)
	}
	// Output: build confirmed because: wrong branch
}

// An agent runtime does a turn as a run of Belay: it can be seen, and stopped with
// everything that hangs below it, by the same doors as a tool call.
func ExampleClient_Hold() {
	url, _, end := serveExample()
	defer end()
	c, err := client.New(client.Options{Server: url, Token: "ann-token"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.CloseIdle()

	turn := client.Registration{Kind: belay.KindTurn, Name: "fix the tests", Labels: map[string]string{"conversation": "42"}}
	err = c.Hold(context.Background(), turn, func(ctx context.Context, _ *client.Lease) error {
		// Somebody presses Stop.
		_, err := c.Cancel(context.Background(), belay.CancelRequest{
			Filter:       belay.Filter{Labels: map[string]string{"conversation": "42"}},
			Cancellation: belay.Cancellation{Reason: "enough"},
		})
		if err != nil {
			return err
		}
		<-ctx.Done() // the work of the turn ends here
		return context.Cause(ctx)
	})
	fmt.Println(err)
	// Output: cancelled (user by ann): enough
}

// Work that does not fit into a function: the parts of Hold.
func ExampleLease_Hold() {
	url, _, end := serveExample()
	defer end()
	c, err := client.New(client.Options{Server: url, Token: "ann-token"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.CloseIdle()

	turn, err := c.Register(context.Background(), client.Registration{Kind: belay.KindTurn, Name: "fix the tests"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, release := turn.Hold(context.Background())
	defer release()

	err = ctx.Err() // here the work would be
	done, err := turn.Finish(ctx, err)
	fmt.Println(done.Run.Outcome, err)
	// Output: completed <nil>
}
