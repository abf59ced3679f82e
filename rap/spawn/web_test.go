//go:build unix

package spawn

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/belayhq/belay/rap"
)

// web is where callbacks come in.
type web struct {
	url string
	to  atomic.Pointer[rap.Runtime]
}

func newWeb(t *testing.T) *web {
	t.Helper()
	w := &web{}
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.to.Load().ServeHTTP(rw, r) }))
	w.url = s.URL
	t.Cleanup(s.Close)
	return w
}
