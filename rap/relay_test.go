package rap

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/rappeer"
)

// TestRAP41_KeptBeforeTold: what a relay needs to go on with a subscription after a
// restart is on disk when the runtime hears of it; and an end of the program while
// it hears of it makes no last event of a subscription that goes on.
func TestRAP41_KeptBeforeTold(t *testing.T) {
	file := filepath.Join(t.TempDir(), "subscriptions.json")
	started := make(chan *rappeer.Invoked, 1)
	p := peer(t, &rappeer.ToolServer{Tools: map[string]func(*rappeer.Invoked){"watch": subscribes(started)}})
	store, err := OpenStore(file)
	if err != nil {
		t.Fatal(err)
	}
	s := newStage(t, func(o *RuntimeOptions) { o.Servers, o.Store = []Server{{Name: "p", Base: p.Base()}}, store })
	h, err := NewHandler(HandlerOptions{
		Tree: s.tree, Server: "p", Toolset: NewRelay(s.Runtime, "p"), Authenticator: Loopback("ann"), PartialWait: 30 * time.Second, // longer than the test may take to let go
	})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(h)
	defer web.Close()

	told, release := make(chan []Stored, 1), make(chan struct{})
	far := &rappeer.Runtime{Base: web.URL, Status: func(_ string, n int) int {
		if n == 1 {
			list, _ := store.Load()
			told <- list
			<-release
		}
		return http.StatusOK
	}}
	far.Start()
	defer far.Stop()
	if a, err := far.Invoke("watch", "t", "c", nil); err != nil || a.Status != http.StatusOK {
		t.Fatalf("%v %v", a, err)
	}
	if list := <-told; len(list) != 1 || len(list[0].Data) == 0 {
		t.Errorf("the runtime is told of it, and this is kept: %+v", list)
	}

	ctx, end := context.WithTimeout(t.Context(), 60*time.Second)
	defer end()
	closed := make(chan error, 1)
	go func() { closed <- h.Close(ctx, belay.Cancellation{Cause: belay.CauseShutdown}) }()
	for stopped := false; !stopped; time.Sleep(time.Millisecond) {
		list, err := s.tree.List(ctx, belay.Filter{Ended: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range list {
			stopped = stopped || i.Outcome == belay.Cancelled
		}
	}
	close(release)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := s.Close(ctx, belay.Cancellation{Cause: belay.CauseShutdown}); err != nil {
		t.Error(err)
	}
	if all := far.Messages("t", "c"); len(all) != 1 || !all[0].Subscription {
		t.Errorf("the runtime got %+v", all)
	}
	if list, err := store.Load(); err != nil || len(list) != 1 {
		t.Errorf("kept at the end: %+v, %v", list, err)
	}
}
