//go:build !linux

package proc

import "context"

// awaitNotice: a death is not announced here.
func awaitNotice(context.Context, ID) (done bool, err error) { return false, nil }
