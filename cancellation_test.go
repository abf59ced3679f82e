package belay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestCancellationSaysWhoAndWhy(t *testing.T) {
	for want, c := range map[string]Cancellation{
		"cancelled (user)":                      {Cause: CauseUser},
		"cancelled (operator by ana): too slow": {Cause: CauseOperator, By: "ana", Reason: "too slow"},
	} {
		if got := c.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	deadline := fmt.Errorf("call: %w", &Cancellation{Cause: CauseDeadline})
	if !errors.Is(deadline, ErrCancelled) || !errors.Is(deadline, context.Canceled) || !errors.Is(deadline, context.DeadlineExceeded) || errors.Is(deadline, ErrEnded) {
		t.Error("a deadline is not what errors.Is should say")
	}
	ctx, end := context.WithCancelCause(context.Background())
	end(deadline)
	if c := CancellationOf(ctx); c == nil || c.Cause != CauseDeadline {
		t.Errorf("a wrapped cause: %v", c)
	}
}

func TestCleanReason(t *testing.T) {
	for in, want := range map[string]string{
		"":                               "",
		"plain":                          "plain",
		"  blanks  ":                     "blanks",
		"two\nlines\tand\rmore":          "two lines and more",
		"\x1b[31mred\x1b[0m\x07":         "[31mred[0m",
		"right\u202eleft\u2066x\u200f":   "rightleftx",
		"line\u2028break\u2029":          "linebreak",
		"bad\xff\xfeutf8":                "bad\uFFFDutf8",
		"grüße 世界 🛑":                     "grüße 世界 🛑",
		"\x00\x00":                       "",
		strings.Repeat("x", MaxReason+1): strings.Repeat("x", MaxReason),
		strings.Repeat("é", MaxReason):   strings.Repeat("é", MaxReason/2),
		"x" + strings.Repeat("é", 1000):  "x" + strings.Repeat("é", 511),
		strings.Repeat("a\xff", 1000):    strings.Repeat("a\uFFFD", MaxReason/4),
	} {
		if got := CleanReason(in); got != want {
			t.Errorf("%.40q became %.60q (%d bytes), want %.60q (%d bytes)", in, got, len(got), want, len(want))
		}
	}
}

// MCP-G21: whatever a peer sends as a reason can be kept, logged and shown.
func FuzzCleanReason(f *testing.F) {
	for _, s := range []string{"", "plain", "a\nb", "\xff\xfe", "\u202e\u2066", strings.Repeat("é\xff", 700), " x ", "\u0085\u009b31m"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := CleanReason(s)
		if !utf8.ValidString(got) || len(got) > MaxReason || strings.TrimSpace(got) != got {
			t.Errorf("%q became %q (%d bytes)", s, got, len(got))
		}
		for _, r := range got {
			if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' {
				t.Errorf("%q kept %U", s, r)
			}
		}
		if again := CleanReason(got); again != got {
			t.Errorf("cleaning %q twice gives %q", got, again)
		}
	})
}
