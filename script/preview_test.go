package script

import (
	"context"
	"strings"
	"testing"
	"time"
)

// previews runs a tool whose preview does this, looks as often as that, and answers.
func previews(t *testing.T, action string, answer Answer, times int, limit time.Duration) (seen []string, e Ended, logs string) {
	t.Helper()
	const source = `let asked = 0
AssistantTool.registerApprovalRequest<any>(async () => ({message: "?", primaryButtonLabel: "Yes", secondaryButtonLabel: "No", previewButton: {label: "Show", action: ACTION}}))
AssistantTool.registerExecuteToolWithApproval<any>(async (p: any, a: any) => ({success: true, message: "executed " + a.primaryConfirmed + " " + AssistantTool.getState("k")}))`
	w := &watch{}
	hooks := w.hooks()
	hooks.Report = func(string, string) {}
	hooks.Ask = func(ctx context.Context, d Dialog) (Answer, error) {
		for range times {
			seen = append(seen, d.OnPreview(ctx))
		}
		return answer, nil
	}
	e = run(t, project(t, true, strings.Replace(source, "ACTION", action, 1)), "{}", Options{Hooks: hooks, previewTime: limit})
	logs, _ = w.said()
	return seen, e, logs
}

// TestAT60_HostilePreviews: whatever a preview does, the answer counts and comes through,
// and what was reported until then is shown.
func TestAT60_HostilePreviews(t *testing.T) {
	for name, tt := range map[string]struct{ action, want, log string }{
		"throws":          {`() => { AssistantTool.report("a"); throw new Error("half way") }`, "a", "the preview failed: half way"},
		"rejects":         {`async () => { AssistantTool.report("a"); await null; throw new Error("half way") }`, "a", "the preview failed: half way"},
		"exits":           {`() => { AssistantTool.report("a"); (globalThis as any).Script.exit({success: true, message: "out"}) }`, "a", "it called Script.exit"},
		"exits later":     {`async () => { AssistantTool.report("a"); await new Promise(r => setTimeout(r, 1)); (globalThis as any).Script.exit({success: true, message: "out"}) }`, "a", "it called Script.exit"},
		"loops":           {`() => { AssistantTool.report("a"); while (true) {} }`, "a", "took too long"},
		"is too much":     {`() => { for (let i = 0; i < 100; i++) AssistantTool.report("x".repeat(1 << 20)) }`, "\n[… cut: the preview goes on, and is too long to be shown]", ""},
		"is many":         {`() => { for (let i = 0; i < 100000; i++) AssistantTool.report("x") }`, "\n[… cut: the preview goes on, and is too long to be shown]", ""},
		"is no text":      {`() => { AssistantTool.report({toString() { throw new Error("no") }} as any) }`, "", "the preview failed"},
		"sets onCancel":   {`() => { AssistantTool.onCancel = () => "x"; AssistantTool.report("a " + AssistantTool.onCancel) }`, "a null", ""},
		"previews itself": {`() => { AssistantTool.registerApprovalRequest(async () => ({message: "other"})); AssistantTool.report("a") }`, "a", ""},
	} {
		for _, answer := range []Answer{Primary, Secondary} {
			t.Run(name+" "+string(answer), func(t *testing.T) {
				t.Parallel()
				seen, e, logs := previews(t, tt.action, answer, 1, 0)
				if shown := strings.Join(seen, "|"); len(seen) != 1 || !strings.HasSuffix(shown, tt.want) || tt.want == "" && shown != "" || len(shown) > maxPreview {
					t.Errorf("it showed %.80q of %d bytes, want %q", seen, len(shown), tt.want)
				}
				want := map[Answer]string{Primary: "executed true null", Secondary: "executed false null"}[answer]
				if text(e.Result) != want || e.Declined != (answer == Secondary) || e.Ending != Returned || !strings.Contains(logs, tt.log) {
					t.Errorf("ended %+v, log %.300q", e, logs)
				}
			})
		}
	}
}

// TestAT60_APreviewThatCannotBeEndedAlone: an interrupt behind an await leaves a machine
// in which the tool could not work. The call fails at once, with words that say why, and
// not when the person has answered.
func TestAT60_APreviewThatCannotBeEndedAlone(t *testing.T) {
	for _, wait := range []string{"null", "new Promise(r => setTimeout(r, 1))"} {
		t.Run(wait, func(t *testing.T) {
			t.Parallel()
			withdrawn := make(chan string, 1)
			const source = `AssistantTool.registerApprovalRequest<any>(async () => ({message: "?", primaryButtonLabel: "Yes", previewButton: {label: "Show",
	action: async () => { AssistantTool.report("a"); await WAIT; while (true) {} }}}))
AssistantTool.registerExecuteToolWithApproval<any>(async (p: any, a: any) => ({success: true, message: "executed"}))`
			hooks := (&watch{}).hooks()
			hooks.Ask = func(ctx context.Context, d Dialog) (Answer, error) {
				seen := d.OnPreview(ctx)
				<-ctx.Done()
				withdrawn <- seen
				return Dismissed, context.Cause(ctx)
			}
			e := run(t, project(t, true, strings.Replace(source, "WAIT", wait, 1)), "{}", Options{Hooks: hooks})
			if text(e.Result) != "Error: the tool's preview ran for too long, and could not be ended alone" || e.Result.Success || e.Ending != Returned {
				t.Errorf("ended %+v", e)
			}
			if seen := <-withdrawn; seen != "a" {
				t.Errorf("it showed %q", seen)
			}
		})
	}
}

// TestAT60_ThePreviewThatNeverReturns shows what it has reported when its time is over,
// and the next look is a look of its own.
func TestAT60_ThePreviewThatNeverReturns(t *testing.T) {
	t.Parallel()
	const action = `() => { AssistantTool.report("look " + ++asked); return new Promise(() => { if (asked === 1) setInterval(() => AssistantTool.report("of the first"), 5) }) }`
	seen, e, logs := previews(t, action, Primary, 2, 100*time.Millisecond)
	if len(seen) != 2 || !strings.HasPrefix(seen[0], "look 1\nof the first") || !strings.HasPrefix(seen[1], "look 2") || text(e.Result) != "executed true null" || strings.Count(logs, "took too long") != 2 {
		t.Errorf("it showed %q, ended %+v, log %q", seen, e, logs)
	}
}

// TestAT74_ExitWithoutApproval: the request function can end the call, and then nobody
// has approved it, whatever it says.
func TestAT74_ExitWithoutApproval(t *testing.T) {
	t.Parallel()
	const source = `AssistantTool.registerApprovalRequest<any>(async () => { (globalThis as any).Script.exit({success: true, message: "out"}); return {message: "?"} })
AssistantTool.registerExecuteToolWithApproval<any>(async () => ({success: true, message: "executed"}))`
	e := run(t, project(t, true, source), "{}", Options{})
	if text(e.Result) != "out" || !e.Declined {
		t.Errorf("ended %+v", e)
	}
}

// TestAT60_AnsweredWhileAPreviewRuns: nobody is left who waits for it, also of one that is
// wanted when the call is over.
func TestAT60_AnsweredWhileAPreviewRuns(t *testing.T) {
	t.Parallel()
	const source = `AssistantTool.registerApprovalRequest<any>(async () => ({message: "?", primaryButtonLabel: "Yes",
	previewButton: {label: "Show", action: () => { console.log("looks"); return new Promise(() => {}) }}}))
AssistantTool.registerExecuteToolWithApproval<any>(async (p: any, a: any) => ({success: true, message: "executed"}))`
	w := &watch{}
	hooks, begun, seen := w.hooks(), make(chan struct{}), make(chan string, 1)
	hooks.Log = func(string, string) { close(begun) }
	var late func(context.Context) string
	hooks.Ask = func(_ context.Context, d Dialog) (Answer, error) {
		late = d.OnPreview
		go func() { seen <- d.OnPreview(context.Background()) }()
		<-begun
		return Primary, nil
	}
	if e := run(t, project(t, true, source), "{}", Options{Hooks: hooks}); text(e.Result) != "executed" || e.Declined {
		t.Errorf("ended %+v", e)
	}
	if shown := <-seen + late(context.Background()); shown != "" {
		t.Errorf("it showed %q", shown)
	}
}
