package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// A script that wants approval asks Belay (Config.Asks), not its caller: the question
// becomes one of the call's run, so that every door to approvals shows it, and beside
// that the caller is asked, if it takes questions. The first answer wins, and the
// question is taken back everywhere else. A Stop of the call, and its end, take it
// back too (AT-61, AT-65, AT-66).
//
// A legacy caller is asked by elicitation. A modern one is asked by the answer to its
// request, and comes back with another leg (MCP-65). Other than where a server asks
// that way itself (rounds.go), the call goes on meanwhile: an answer may come by
// another door. What its script then ends with is held for the leg that comes.

// Asker asks the person behind a caller that takes no questions itself, by a way of
// its own.
type Asker interface {
	// AskCall puts a question about a call, and returns when it was answered or ctx
	// has ended: it was then answered elsewhere, or nobody wants the answer any more.
	// An error says that nobody could be asked; the other doors go on.
	AskCall(ctx context.Context, call *belay.Run, a belay.Approval) (belay.Decision, error)
}

// dialog is one question of a script. Session.mu guards the last fields.
type dialog struct {
	u  *upstream
	c  *call
	id jsonrpc.ID // the worker's request
	q  mcp.Question

	ctx context.Context // ends when nobody waits for an answer any more
	end context.CancelCauseFunc

	approval belay.Approval
	ask      *ask   // open at a legacy caller; nil: none
	seen     string // what the preview has shown
	over     bool
}

// inputKey names the one thing that a modern caller is asked.
const inputKey = "answer"

var (
	errDecided   = errors.New("the question was answered")
	errWithdrawn = errors.New("the tool has withdrawn its question")
)

// asks reports whether a call may ask for approval in Belay's own way.
func (c *call) asks() bool { return c.s.cfg.Asks && c.method == mcp.MethodCallTool && c.run != nil }

// scriptAsked takes a script's question.
func (u *upstream) scriptAsked(m *mcp.Message) {
	s := u.s
	q, err := mcp.ReadQuestion(m)
	if err != nil {
		u.send(jsonrpc.AppendError(nil, m.ID, mcp.CodeInvalidParams, err.Error(), nil))
		return
	}
	// What is too long for a door is cut for all, so that nobody approves what he does
	// not see while another does.
	q.Title, q.Message = fits(q.Title, maxTitle), fits(q.Message, maxMessage)
	q.Primary, q.Secondary, q.Preview = fits(q.Primary, maxButton), fits(q.Secondary, maxButton), fits(q.Preview, maxButton)
	d := &dialog{u: u, id: m.ID, q: q}
	d.ctx, d.end = context.WithCancelCause(s.life)
	s.mu.Lock()
	why := d.beginLocked()
	s.mu.Unlock()
	if why != "" {
		d.end(errWithdrawn)
		u.send(jsonrpc.AppendError(nil, m.ID, mcp.CodeInvalidRequest, why, nil))
	}
}

// beginLocked has the question asked, or says why it cannot be.
func (d *dialog) beginLocked() (why string) {
	u, s := d.u, d.u.s
	d.c = u.calls[jsonrpc.StringID(d.q.Call).Key()]
	_, twice := u.dialogs[d.id.Key()]
	switch {
	case d.c == nil || d.c.run == nil || d.c.work != nil:
		return fmt.Sprintf("no call %.64q is in flight", d.q.Call)
	case d.c.stopped || d.c.byCaller:
		return "the call was cancelled"
	case twice || len(u.dialogs) >= maxAsks:
		return fmt.Sprintf("the id is in flight, or more than %d questions are open", maxAsks)
	case !s.goLocked(d.run):
		return tooLate
	}
	if u.dialogs == nil {
		u.dialogs = make(map[string]*dialog)
	}
	u.dialogs[d.id.Key()] = d
	return ""
}

// run asks, and gives the worker the answer.
func (d *dialog) run() {
	decision, err := d.c.run.Ask(d.ctx, belay.Question{
		Title: d.q.Title, Text: d.q.Message, Primary: d.q.Primary, Secondary: d.q.Secondary, Timeout: d.q.Timeout, Show: d.show,
		Preview: d.q.Preview, Look: d.look,
	})
	d.finish()
	if err != nil {
		d.u.send(jsonrpc.AppendError(nil, d.id, belay.JSONRPCCode(err), err.Error(), nil))
		return
	}
	d.u.s.log.Info("a question was answered", "run", d.c.run.ID(), "choice", decision.Choice, "by", decision.By, "via", decision.Via)
	d.u.send(mcp.AppendAskAnswer(nil, d.id, answerOf(decision.Choice)))
}

// answerOf is a decision as a script gets it (AT-61).
func answerOf(c belay.Choice) string {
	switch c {
	case belay.ChoiceApproved:
		return mcp.AnswerPrimary
	case belay.ChoiceDeclined:
		return mcp.AnswerSecondary
	}
	return mcp.AnswerDismissed
}

// finish takes the question back wherever it is still open.
func (d *dialog) finish() {
	defer d.end(errDecided)
	s := d.u.s
	s.mu.Lock()
	defer s.mu.Unlock()
	d.over = true
	delete(d.u.dialogs, d.id.Key())
	if a := d.ask; a != nil && s.asks[a.ours.Key()] == a {
		s.cancelAskLocked(a, d.c.era, "it was answered elsewhere, or nobody waits for the answer any more")
	}
	d.ask = nil
}

// withdrawnLocked takes the worker's own word that it waits no more; false if the id
// is of no question.
func (u *upstream) withdrawnLocked(key string) bool {
	d := u.dialogs[key]
	if d != nil {
		d.end(errWithdrawn)
	}
	return d != nil
}

// show puts the question before the caller, when it has an id.
func (d *dialog) show(a belay.Approval) {
	s := d.u.s
	s.mu.Lock()
	defer s.mu.Unlock()
	d.approval = a
	d.putLocked()
}

// putLocked asks the caller, or whoever can be asked in its place.
func (d *dialog) putLocked() {
	c, s := d.c, d.u.s
	switch {
	case d.over || c.stopped || c.byCaller || c.apart:
	case c.era == mcp.Modern && c.elicits:
		s.partLocked(d)
	case c.era == mcp.Legacy && c.batch == nil && s.hand.Elicits():
		d.elicitLocked()
	default:
		d.unableLocked()
	}
}

// unableLocked goes on where the caller itself cannot be asked.
func (d *dialog) unableLocked() {
	s := d.u.s
	if s.cfg.Asker == nil || d.over {
		s.log.Info("a call waits for approval, and its caller cannot be asked (see belay approvals)", "run", d.c.run.ID(), "approval", d.approval.ID)
		return
	}
	s.goLocked(func() {
		decision, err := s.cfg.Asker.AskCall(d.ctx, d.c.run, d.approval)
		switch {
		case err == nil:
			d.decide(decision)
		case d.ctx.Err() == nil:
			s.log.Info("nobody could be asked for the caller; the question stays open (see belay approvals)", "run", d.c.run.ID(), "error", err)
		}
	})
}

// elicitLocked asks a legacy caller, on the stream of its call.
func (d *dialog) elicitLocked() {
	c, s := d.c, d.u.s
	a := &ask{up: d.u, to: s.outlet(c), ours: s.askIDs.Next(), method: mcp.MethodElicitation, about: c, dialog: d}
	s.asks[a.ours.Key()] = a
	d.ask = a
	if err := a.to.Send(jsonrpc.AppendRequest(nil, a.ours, mcp.MethodElicitation, d.form())); err != nil {
		s.unreadLocked(err)
		delete(s.asks, a.ours.Key())
		d.ask = nil
		d.unableLocked()
	}
}

// form is the question as an elicitation with one field: which button.
func (d *dialog) form() []byte {
	type field struct {
		Type  string   `json:"type"`
		Title string   `json:"title"`
		Enum  []string `json:"enum"`
	}
	schema := struct {
		Type       string           `json:"type"`
		Properties map[string]field `json:"properties"`
		Required   []string         `json:"required,omitempty"`
	}{Type: "object", Properties: map[string]field{}}
	text := d.q.Message
	if title := d.approval.Question.Title; title != "" {
		text = title + "\n\n" + text
	}
	if d.seen != "" {
		text += "\n\n" + d.q.Preview + ":\n" + d.seen
	}
	if names, _ := d.buttons(); len(names) > 0 {
		schema.Properties[inputKey] = field{"string", "Answer", names}
		schema.Required = []string{inputKey}
	}
	params, err := json.Marshal(struct {
		Mode    string `json:"mode"`
		Message string `json:"message"`
		Schema  any    `json:"requestedSchema"`
	}{"form", text, schema})
	if err != nil { // texts only
		return []byte(`{}`)
	}
	return params
}

// choicePreview is the button that decides nothing.
const choicePreview belay.Choice = "preview"

// buttons are what the question offers, under names that differ.
func (d *dialog) buttons() (names []string, choices []belay.Choice) {
	add := func(label string, choice belay.Choice) {
		if label == "" {
			return
		}
		for i := range names {
			if names[i] == label {
				label = fmt.Sprintf("%s (%d)", label, len(names)+1)
			}
		}
		names, choices = append(names, label), append(choices, choice)
	}
	add(d.q.Primary, belay.ChoiceApproved)
	add(d.q.Secondary, belay.ChoiceDeclined)
	add(d.q.Preview, choicePreview)
	return names, choices
}

// toldLocked takes what the caller answered: the result of an elicitation. None: it
// could not be asked.
func (d *dialog) toldLocked(frame []byte, result jsonrpc.Span) {
	d.ask = nil
	if d.over {
		return
	}
	var answer struct {
		Action  string `json:"action"`
		Content struct {
			Answer string `json:"answer"`
		} `json:"content"`
	}
	said := result.Ok() && json.Unmarshal(result.Of(frame), &answer) == nil
	choice := belay.ChoiceDismissed
	switch {
	case said && answer.Action == "accept":
		names, choices := d.buttons()
		for i := range names {
			if names[i] == answer.Content.Answer {
				choice = choices[i]
			}
		}
	case said && answer.Action == "decline":
		choice = belay.ChoiceDeclined
	case said && answer.Action == "cancel":
	default:
		d.unableLocked()
		return
	}
	if choice == choicePreview {
		d.u.s.goLocked(d.preview)
		return
	}
	d.decide(belay.Decision{Choice: choice, By: d.u.s.cfg.Owner, Via: "mcp"})
}

// decide answers the question, unless somebody has before.
func (d *dialog) decide(decision belay.Decision) {
	if _, err := d.u.s.tree.Decide(d.ctx, d.approval.ID, decision); err != nil {
		d.u.s.log.Debug("an answer to a question came too late, or is none", "run", d.c.run.ID(), "error", err)
	}
}

// preview has the script show what it would do, and asks again (AT-60).
func (d *dialog) preview() {
	seen, err := d.u.s.tree.Preview(d.ctx, d.approval.ID)
	if err != nil {
		d.u.s.log.Info("a preview showed nothing", "run", d.c.run.ID(), "error", err)
	}
	d.u.s.mu.Lock()
	defer d.u.s.mu.Unlock()
	d.seen = seen
	d.putLocked()
}

// look runs the script's preview, for whoever wants to see it.
func (d *dialog) look(ctx context.Context) (string, error) {
	m, err := d.u.askWith(ctx, func(id jsonrpc.ID) []byte { return mcp.AppendPreview(nil, id, d.q.Call, d.c.era) })
	if err != nil {
		return "", fmt.Errorf("the script's preview: %w", err)
	}
	return mcp.PreviewText(m)
}

// Bounds of a question in bytes: those of [belay.Question].
const (
	maxTitle   = 256
	maxMessage = 8 << 10
	maxButton  = 128
)

// fits is a text that a person is shown, cut where it has to be, which it then says.
func fits(text string, limit int) string {
	const short, long = " […]", "\n[… cut: the text goes on, and is too long to be shown]"
	text = shown(text)
	if len(text) <= limit {
		return text
	}
	note := short
	if limit == maxMessage {
		note = long
	}
	end := limit - len(note)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + note
}

// shown is a text of a script as a person may be shown it: it may be printed on a
// terminal, where control characters are commands.
func shown(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return -1
		}
		return r
	}, text))
}

// partLocked asks a modern caller by the answer to its request. The call goes on.
func (s *Session) partLocked(d *dialog) {
	c := d.c
	frame := mcp.AppendInputRequired(nil, c.id, inputKey, d.form(), "belay-"+rand.Text())
	var m mcp.Message
	if err := m.Read(frame); err != nil { // it was made of texts a moment ago
		d.unableLocked()
		return
	}
	key, ok := m.AskedRound(c.method, c.name)
	if !ok {
		d.unableLocked()
		return
	}
	s.addRoundLocked(key, c, max(0, time.Until(d.approval.Expires))+roundTime)
	if s.cfg.NameRuns {
		frame = mcp.NameRun(frame, c.run.ID())
	}
	to := s.outlet(c)
	s.forgetLocked(c)
	c.apart, c.dialog, c.to = true, d, nobody{}
	s.settleLocked(to, frame)
}

// rejoinLocked takes the next leg of a call that has gone on without its caller, and
// was not stopped.
func (s *Session) rejoinLocked(r *round, leg *call, m *mcp.Message) {
	c := r.of
	s.forgetRoundLocked(r)
	c.apart = false
	if held := c.held; held != nil {
		c.letGoLocked()
		var answer mcp.Message
		if err := answer.Read(held); err != nil { // it was read before
			held = jsonrpc.AppendError(nil, leg.id, mcp.CodeInternal, err.Error(), nil)
		} else {
			held = jsonrpc.AppendSplice(nil, held, jsonrpc.Edit{At: answer.IDAt, New: []byte(leg.id.Raw())})
		}
		s.replyLocked(leg, held)
		return
	}
	c.nextLeg(leg.names)
	c.id, c.key, c.token, c.to, c.pass = leg.id, leg.key, leg.token, leg.to, leg.pass
	c.answered, c.elicits = false, leg.elicits
	s.calls[c.key] = c
	if c.pass != 0 {
		s.passes[c.pass] = c
	}
	d := c.dialog
	c.dialog = nil
	if at, ok := m.InputResponse(inputKey); ok {
		d.toldLocked(m.Frame, at)
		return
	}
	d.toldLocked(nil, jsonrpc.Span{}) // it could not be asked
}

// maxHeld bounds in bytes the answers of a session that wait for their callers, unless
// Config.maxHeld does.
const maxHeld = 64 << 20

// heldBack keeps the answer to a call whose caller has yet to come back for it.
func (c *call) heldBack(frame []byte) bool {
	if !c.apart {
		return false
	}
	c.letGoLocked()
	if limit := cmp.Or(c.s.cfg.maxHeld, maxHeld); c.s.held+len(frame) > limit {
		frame = jsonrpc.AppendError(nil, c.id, mcp.CodeInternal, fmt.Sprintf("the answer was dropped: more than %d bytes of answers wait for callers to come back", limit), nil)
	}
	c.held = frame
	c.s.held += len(frame)
	return true
}

// letGoLocked forgets the answer that waited, if there is one.
func (c *call) letGoLocked() {
	c.s.held -= len(c.held)
	c.held = nil
}

// nobody is the outlet of a call between two legs.
type nobody struct{}

func (nobody) Send([]byte, ...jsonrpc.Edit) error { return nil }

func (nobody) Answer(int, []byte, ...jsonrpc.Edit) error { return nil }

func (nobody) Drop() {}

// saidOutcome is how a worker's answer says that its call ended, and the answer
// without that word, which is for Belay alone.
func saidOutcome(m *mcp.Message) (*mcp.Message, belay.Outcome) {
	outcome, at := mcp.ResultOutcome(m)
	if !at.Ok() {
		return m, outcomeOf(m)
	}
	bare := &mcp.Message{}
	if err := bare.Read(jsonrpc.AppendSplice(nil, m.Frame, jsonrpc.Edit{At: at})); err != nil {
		return m, outcomeOf(m)
	}
	if outcome != belay.Declined {
		outcome = outcomeOf(m)
	}
	return bare, outcome
}

// askMeta lets the worker ask about a call, which it names by our own id.
func askMeta(c *call) mcp.MetaMember {
	text, _ := c.upID.Text()
	return mcp.AskMeta(text)
}
