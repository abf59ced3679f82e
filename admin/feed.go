package admin

import "github.com/belayhq/belay"

type feed struct{}

func newFeed(belay.Control) *feed { return &feed{} }
func (f *feed) close()            {}
