package gateway

import (
	"bytes"
	"errors"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// A task is the work that goes on after its request was answered (MCP-45,
// MCP-79). It is a run of its own, below the session like the call it came from
// (MCP-G38), from the answer that says so until one of these:
//
//   - The server says that it is completed, failed or cancelled, in any answer or
//     notification that passes here.
//   - Its process has ended, or a request about it is answered with "unknown
//     task": outcome lost.
//   - Nothing was heard of it for its time to live and a little more: lost.
//
// While it works it counts as a call in flight of its process: force used for
// another call waits for it. It is stopped by tasks/cancel, and then by the same
// rules of force as a call.

// task is a request that became a task. Its call stands for the work: it has the
// process, the moment of birth and the progress token of the request, whose
// place it takes in the process's table.
type task struct {
	*call
	taskID string // as text
	raw    []byte // the same as JSON
	ttl    time.Duration
	heard  time.Time   // when the server last said something about it
	timer  *time.Timer // looks whether it is lost
	byTask bool        // the caller's own tasks/cancel carries the Stop
	over   bool        // nothing is waited for any more
}

// Bounds of tasks.
const (
	maxTasks  = 10_000           // that one session watches; beyond, the one unheard of for longest is lost
	taskSlack = 30 * time.Second // beyond its time to live, before it is lost
	taskTTL   = 24 * time.Hour   // of tasks whose server names no time
)

// becameTaskLocked makes the work of a call a run of its own if its answer says
// that the request became a task, before the answer is passed on. It binds the
// id to the principal in any case.
func (u *upstream) becameTaskLocked(c *call, m *mcp.Message) *task {
	if !c.mayBecomeTask() {
		return nil
	}
	raw := m.TaskID()
	if raw == nil {
		return nil
	}
	s := u.s
	news := m.CreatedTask()
	if news.ID == "" {
		s.log.Warn("the id of a task is too long to be remembered; it cannot be stopped here", "bytes", len(raw))
		return nil
	}
	s.cfg.Tasks.bind(news, s, u)
	if t := s.tasks[news.ID]; t != nil {
		if t.up == u {
			t.newsLocked(news) // two requests, one task
			return t
		}
		t.loseLocked("its id was given to another task")
	}
	s.makeRoomForTaskLocked()
	t := &task{taskID: news.ID, raw: bytes.Clone(raw), ttl: news.TTL, heard: time.Now()}
	t.call = &call{
		s: s, id: c.id, method: c.method, name: c.name, token: c.token, era: c.era, policy: c.policy, args: c.args,
		up: u, upID: c.upID, began: c.began, until: c.until, others: c.others, work: t, names: c.names,
	}
	if err := t.register(c.run.Started()); err != nil {
		s.log.Warn("a task could not be registered", "task", t.taskID, "error", err)
		if errors.Is(err, belay.ErrCancelled) || errors.Is(err, belay.ErrClosed) {
			_, _, _ = u.postTaskCancelLocked(c, raw) // nobody is left to want it
		}
		return nil
	}
	t.inheritLocked(c)
	t.timer = time.AfterFunc(t.patience(), t.expire)
	t.newsLocked(news)
	if early, ok := u.early[news.ID]; ok { // it was over before the answer came
		delete(u.early, news.ID)
		t.newsLocked(early)
	}
	return t
}

// mayBecomeTask spares all other answers the look into them.
func (c *call) mayBecomeTask() bool {
	return c.run != nil && (c.task || c.era == mcp.Modern && c.method == mcp.MethodCallTool)
}

func (t *task) register(began time.Time) (err error) {
	spec := t.runSpec(belay.KindTask, t.taskID)
	spec.Stopper, spec.OnCancel = t, t.onCancel
	if t.policy.Deadline > 0 && t.method == mcp.MethodCallTool && !t.s.cfg.PassCancels {
		spec.Deadline = began.Add(t.policy.Deadline) // counts for all of its life (MCP-G23)
	}
	t.run, err = t.s.tree.Register(spec)
	if errors.Is(err, belay.ErrEnded) && t.outside() { // the run above has ended meanwhile; the work has not
		spec.Parent = t.s.run
		t.run, err = t.s.tree.Register(spec)
	}
	return err
}

// inheritLocked takes over what the call had of its process.
func (t *task) inheritLocked(c *call) {
	s, u, w := t.s, t.up, t.call
	if s.tasks == nil {
		s.tasks = make(map[string]*task)
	}
	s.tasks[t.taskID] = t
	u.calls[t.upID.Key()] = w // so that progress finds its token (MCP-51)
	w.counted = true
	u.busy++
	if t.method == mcp.MethodCallTool {
		u.tools++
	}
	if u.solo == c {
		u.solo = w
	}
	if u.lease == c {
		u.lease = w
	}
	for _, a := range s.asks {
		if a.about == c {
			a.about = w
		}
	}
}

// makeRoomForTaskLocked loses the task that was silent for longest when there
// are too many.
func (s *Session) makeRoomForTaskLocked() {
	if len(s.tasks) < maxTasks {
		return
	}
	var oldest *task
	for _, t := range s.tasks {
		if oldest == nil || t.heard.Before(oldest.heard) {
			oldest = t
		}
	}
	oldest.loseLocked("too many tasks are being watched")
}

// newsLocked takes what the server says of a task.
func (t *task) newsLocked(n mcp.TaskNews) {
	t.heard = time.Now()
	if n.TTL > 0 {
		t.ttl = n.TTL
	}
	switch {
	case t.run.Cancellation() != nil:
		t.saidLocked(n)
	case n.Status.Terminal():
		t.finishLocked(n)
	case n.Status == mcp.TaskInputRequired:
		t.run.Pause()
	case n.Status == mcp.TaskWorking:
		t.run.Start()
	}
}

// finishLocked ends the run of a task that has ended by itself, once.
func (t *task) finishLocked(n mcp.TaskNews) {
	o := belay.Completed
	switch {
	case n.Status == mcp.TaskCancelled:
		o = belay.Cancelled // by the server, or through another door than this
	case n.Status == mcp.TaskFailed || n.Failed:
		o = belay.Failed
	}
	t.run.Finish(o)
	t.overLocked()
}

// loseLocked ends the run of a task of which nothing will be heard any more.
func (t *task) loseLocked(why string) {
	if t.run.Cancellation() == nil && t.run.Finish(belay.Lost) {
		t.s.log.Warn("a task is lost", "run", t.run.ID(), "task", t.taskID, "why", why)
	}
	t.overLocked()
}

// overLocked forgets a task: its progress token is nobody's from now on
// (MCP-51). Its id stays bound to the principal.
func (t *task) overLocked() {
	if t.over {
		return
	}
	t.over = true
	if t.timer != nil {
		t.timer.Stop()
	}
	if t.s.tasks[t.taskID] == t {
		delete(t.s.tasks, t.taskID)
	}
	t.up.removeLocked(t.call)
	t.up.releaseLocked(t.call)
}

// patience is how long nothing has to be heard of a task before it is lost.
func (t *task) patience() time.Duration {
	ttl := t.ttl
	if ttl <= 0 {
		ttl = taskTTL
	}
	return ttl + t.s.cfg.taskSlack
}

// expire loses a task of which nothing was heard for too long. A request about
// it that is waiting for its answer is a sign that it is there.
func (t *task) expire() {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.over {
		return
	}
	for _, c := range s.calls {
		if c.ref == t.taskID && c.up != nil {
			t.heard = time.Now()
		}
	}
	if left := time.Until(t.heard.Add(t.patience())); left > 0 {
		t.timer.Reset(left)
		return
	}
	t.loseLocked("nothing was heard of it for longer than its time to live")
}

// hostGoneLocked is the end of the process that worked on a task: nobody can
// ask for it any more. On a remote server it outlives the conversation: then it is
// true, since only a fresh one can stop it.
func (t *task) hostGoneLocked() (outlives bool) {
	if t.s.cfg.URL != "" && !t.s.closing {
		t.up.removeLocked(t.call)
		return true
	}
	t.loseLocked("its server's process has ended")
	return false
}

// hostLocked is where a task can be reached; nil: nowhere.
func (t *task) hostLocked() *upstream {
	if t.up.dead && t.s.cfg.URL != "" && t.s.current != nil {
		t.up = t.s.current
	}
	if t.up.dead {
		return nil
	}
	return t.up
}

// hasTasksLocked reports whether there is a task that nobody has stopped.
func (s *Session) hasTasksLocked() bool {
	for _, t := range s.tasks {
		if t.run.Cancellation() == nil {
			return true
		}
	}
	return false
}

// dropTasksLocked forgets all tasks when the session is over.
func (s *Session) dropTasksLocked() {
	for _, t := range s.tasks {
		t.loseLocked("the session is over")
	}
	s.cfg.Tasks.leave(s)
}

// refuseTaskLocked answers a request about a task that is another principal's,
// or was lost with its process: no server is asked (MCP-86, MCP-G38).
func (s *Session) refuseTaskLocked(c *call, m *mcp.Message) bool {
	b, foreign := bound{}, false
	switch {
	case c.ref != "":
		b, foreign = s.cfg.Tasks.find(c.ref, s.cfg.Owner)
	case c.standing():
		for id := range m.ListenedTasks() {
			foreign = foreign || !s.ownsTask(id)
		}
	default:
		return false
	}
	switch {
	case foreign:
		s.log.Warn("a request about another principal's task was refused", "method", c.method)
	case b.s != s || b.up == nil || b.up.tree == nil || !b.up.dead:
		return false
	}
	s.replyLocked(c, jsonrpc.AppendError(nil, c.id, mcp.CodeInvalidParams, "unknown task", nil))
	return true
}

// taskHostLocked is the process that works on the task a request is about, if
// one that takes requests does: they reach it while it is drained, too, since a
// task that is waited for may need them to end, and a tasks/cancel must arrive.
func (s *Session) taskHostLocked(ref string) *upstream {
	if t := s.tasks[ref]; ref != "" && t != nil && t.up.ready && !t.up.dead {
		return t.up
	}
	return nil
}

// ofStoppedTaskLocked reports whether a request is about a task that is being
// stopped. It goes down with the task, and holds no force up.
func (s *Session) ofStoppedTaskLocked(c *call) bool {
	t := s.tasks[c.ref]
	return c.ref != "" && t != nil && t.run.Cancellation() != nil
}

// taskAnswer is what the answer to a request about a task says.
type taskAnswer struct {
	method string
	news   mcp.TaskNews
	code   int // of an error; 0: it is none
}

func readTaskAnswer(method string, m *mcp.Message) taskAnswer {
	a := taskAnswer{method: method}
	switch {
	case m.IsError():
		a.code = errorCode(m)
	case method == mcp.MethodTaskResult:
		a.news.Status, a.news.Failed = mcp.TaskCompleted, mcp.ToolFailed(m)
	default:
		a.news = m.TaskNews()
	}
	return a
}

// aboutTaskLocked takes the answer to a request about a task. What it returns,
// if anything, is to be done without the lock: the task is another session's.
func (s *Session) aboutTaskLocked(c *call, m *mcp.Message) (elsewhere func()) {
	if c.ref == "" {
		return nil
	}
	a, ref := readTaskAnswer(c.method, m), c.ref
	if t := s.tasks[ref]; t != nil {
		t.answeredLocked(a)
		return nil
	}
	b, _ := s.cfg.Tasks.find(ref, s.cfg.Owner)
	if b.s == nil || b.s == s {
		return nil
	}
	return func() {
		b.s.mu.Lock()
		defer b.s.mu.Unlock()
		if t := b.s.tasks[ref]; t != nil {
			t.answeredLocked(a)
		}
	}
}

func (t *task) answeredLocked(a taskAnswer) {
	t.s.cfg.Tasks.touch(t.taskID, t.s.cfg.Owner, a.news.TTL)
	stopped := t.run.Cancellation() != nil
	switch {
	case a.code == 0:
		t.newsLocked(a.news)
		if a.method == mcp.MethodCancelTask && stopped {
			t.askLocked(t.raw)
		}
	case a.method == mcp.MethodCancelTask && stopped:
		t.refusedLocked(a.code)
	case a.method == mcp.MethodTaskResult && stopped:
		t.wordLocked(belay.SeenErrorReply, "the server answered tasks/result with an error")
	case a.method == mcp.MethodTaskResult: // the request's own error (MCP-50)
		t.finishLocked(mcp.TaskNews{Status: mcp.TaskFailed})
	case a.method == mcp.MethodGetTask && a.code == mcp.CodeInvalidParams && !stopped:
		t.loseLocked("the server does not know it any more")
	}
}

// taskNoticed takes a notification about a task, before it is passed on.
func (u *upstream) taskNoticed(m *mcp.Message) {
	s := u.s
	s.mu.Lock()
	defer s.mu.Unlock()
	n := m.TaskNews()
	switch t := s.tasks[n.ID]; {
	case n.ID == "":
	case t != nil:
		s.cfg.Tasks.touch(t.taskID, s.cfg.Owner, n.TTL)
		t.newsLocked(n)
	case n.Status.Terminal():
		u.keepEarlyLocked(n)
	}
}

// maxEarly bounds the news of tasks that nobody knows yet.
const maxEarly = 64

// keepEarlyLocked remembers that a task is over which may be one that an answer
// still on its way tells of.
func (u *upstream) keepEarlyLocked(n mcp.TaskNews) {
	if u.busy == 0 {
		return
	}
	if u.early == nil || len(u.early) >= maxEarly {
		u.early = make(map[string]mcp.TaskNews)
	}
	u.early[n.ID] = n
}

// relatedLocked is the work that a request of the server belongs to by its own
// word; nil: it names no task that is watched (MCP-51, MCP-G22).
func (u *upstream) relatedLocked(m *mcp.Message) *call {
	if t := u.s.tasks[m.RelatedTask()]; t != nil {
		return t.call
	}
	return nil
}

// taskOutletLocked is where a request of a task's goes that came on no stream:
// to who waits for the task's result, if anybody does.
func (s *Session) taskOutletLocked(t *task) mcp.Outlet {
	for _, c := range s.calls {
		if c.ref == t.taskID && c.method == mcp.MethodTaskResult {
			return s.outlet(c)
		}
	}
	return s.home
}

// ownsTask reports whether a task may be shown to the caller: it is not another
// principal's.
func (s *Session) ownsTask(id string) bool {
	_, foreign := s.cfg.Tasks.find(id, s.cfg.Owner)
	return !foreign
}

// unwanted stops a task whose caller cancelled the request when its answer was
// on its way. Nil is no task.
func (t *task) unwanted() {
	if t != nil {
		t.run.Cancel(t.s.byCaller(""))
	}
}
