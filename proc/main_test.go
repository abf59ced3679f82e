//go:build linux

package proc

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	Main()
	if helper() {
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
