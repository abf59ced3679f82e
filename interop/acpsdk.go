package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belayhq/belay/internal/pinned"
)

// The rows of the SDKs of the Agent Client Protocol: each in both roles against
// package acp, and the same once more with "belay acp" between the two.

// What a session is about.
const (
	sdkPrompt        = "session/cancel"
	sdkRequest       = "cancel of a request"
	sdkAsked         = "session/cancel, permission open"
	sdkRecall        = "the agent cancels its own request"
	sdkPromptRequest = "cancel of session/prompt"
)

// sdkPeer is one SDK.
type sdkPeer struct {
	name   string
	agent  func(version int) []string // nil: only a client
	client []string                   // nil: only an agent; version, scenario and the agent's command follow
	v2     bool
	events []string // that its agent serves; nil: all
	allow  string   // the option that its agent offers
	wants  map[string]string
	quick  bool // its turns are over before anybody can press Stop
}

func (p *sdkPeer) yes() string {
	if p.allow != "" {
		return p.allow
	}
	return "ok"
}

// sdkRow is one session.
type sdkRow struct {
	peer, role, event string
	version           int
	belay             bool
	dir               string
	stop              time.Time
	worked            bool // the witness was written
	wentOn            time.Duration
	stillAt           bool
	told, want        string
	next, wantNext    string
	problem           string
}

func (r *sdkRow) judge() {
	switch {
	case r.problem != "":
	case r.stillAt:
		r.problem = "the work went on"
	case r.wentOn > margin:
		r.problem = fmt.Sprintf("the work went on for %v", r.wentOn.Round(time.Millisecond))
	case !strings.Contains(r.told, r.want):
		r.problem = "want " + r.want
	case r.next != r.wantNext:
		r.problem = "next: want " + r.wantNext
	}
}

func (r *sdkRow) failed() bool { return r.problem != "" }

func (r *sdkRow) cells() []string {
	way, work := "library", "-"
	if r.belay {
		way = "library, belay acp between"
	}
	if r.worked {
		work = fmt.Sprintf("%d ms", max(0, r.wentOn.Milliseconds()))
	}
	if r.stillAt {
		work = "still at it"
	}
	return []string{r.peer, r.role, fmt.Sprintf("v%d", r.version), r.event, way, work, r.told, r.next, r.problem}
}

func (r *sdkRow) witness() string { return filepath.Join(r.dir, "witness") }

func (r *sdkRow) env() []string {
	return append(os.Environ(), "ACP_WITNESS="+r.witness(), "BELAY_RUNTIME_DIR="+filepath.Join(r.dir, "run"))
}

func acpSDKTable() table {
	return table{
		title: "SDKs of the Agent Client Protocol",
		method: "The peer is the agent or the client, Belay's package `acp` the other end. \"told\" is what the one who pressed Stop got:\n" +
			"a stop reason, an error code, or the verdict of the library's call. The work writes to a file by itself.",
		columns: []string{"peer", "it is the", "version", "stopped by", "way", "work went on", "told", "next", "problem"},
		told:    6,
	}
}

// acpSDKs runs the rows.
func (h *harness) acpSDKs(only string) {
	self, err := os.Executable()
	if err != nil {
		h.sdks.add(&sdkRow{problem: err.Error()})
		return
	}
	rows := newBatch(h.jobs / 2)
	defer rows.addTo(&h.sdks)
	for _, p := range h.installSDKs() {
		for _, r := range p.rows() {
			name := fmt.Sprintf("%s / %s v%d / %s", r.peer, r.role, r.version, r.event)
			if !strings.Contains(name, only) {
				continue
			}
			for _, belay := range []bool{false, true} {
				if belay && h.belay == "" {
					continue
				}
				one := r
				one.belay = belay
				if belay && !p.quick && (one.event == sdkPrompt || one.event == sdkAsked) {
					one.want = "cancelled" // Belay repairs what the agent says (ACP-B21)
				}
				rows.do(&one, &one.problem, fmt.Sprintf("%s (belay acp: %v)", name, belay), func() error { return h.sdkSession(p, self, &one) })
			}
		}
	}
}

// rows are the sessions of one peer, without the way.
func (p *sdkPeer) rows() []sdkRow {
	var rows []sdkRow
	versions := []int{1}
	if p.v2 {
		versions = append(versions, 2)
	}
	add := func(role, event string, version int, want, next string) {
		if w, ok := p.wants[role+" "+event]; ok {
			want = w
		}
		rows = append(rows, sdkRow{peer: p.name, role: role, event: event, version: version, want: want, wantNext: next})
	}
	for _, v := range versions {
		for _, event := range []string{sdkPrompt, sdkRequest, sdkAsked, sdkRecall} {
			if p.agent == nil || p.events != nil && !slices.Contains(p.events, event) {
				continue
			}
			want := map[string]string{sdkPrompt: "cancelled", sdkAsked: "cancelled", sdkRequest: "acknowledged", sdkRecall: "callback -32800, cancelled (peer"}[event]
			next := "end_turn"
			if event == sdkRequest {
				next = `{"done":true}`
			}
			add("agent", event, v, want, next)
		}
		for _, event := range []string{sdkPrompt, sdkRequest, sdkAsked, sdkPromptRequest} {
			if p.client == nil || event == sdkPromptRequest && v > 1 {
				continue
			}
			want := map[string]string{sdkPrompt: "cancelled", sdkAsked: "cancelled", sdkRequest: "-32800", sdkPromptRequest: "cancelled"}[event]
			next := "end_turn"
			if event == sdkRequest {
				next = `{"done":true}`
			}
			add("client", event, v, want, next)
		}
	}
	return rows
}

func (h *harness) sdkSession(p sdkPeer, self string, r *sdkRow) (err error) {
	if r.dir, err = os.MkdirTemp(h.dir, "sdk-"); err != nil {
		return err
	}
	if r.role == "agent" {
		err = h.asAgent(p, r)
	} else {
		err = h.asClient(p, self, r)
	}
	if err != nil {
		return err
	}
	return r.look()
}

// look reads the witness twice, to see whether the work has ended.
func (r *sdkRow) look() error {
	before, err := os.ReadFile(r.witness())
	if os.IsNotExist(err) {
		return nil // this session has no work
	}
	if err != nil {
		return err
	}
	time.Sleep(time.Second)
	after, err := os.ReadFile(r.witness())
	if err != nil {
		return err
	}
	r.worked, r.stillAt = true, len(after) > len(before)
	lines := strings.Fields(string(after))
	last, err := strconv.ParseInt(lines[len(lines)-1], 10, 64)
	if err != nil {
		return fmt.Errorf("witness: %w", err)
	}
	r.wentOn = time.UnixMilli(last).Sub(r.stop)
	return nil
}

// asClient runs a session of somebody's client with the library as the agent.
func (h *harness) asClient(p sdkPeer, self string, r *sdkRow) error {
	agent := []string{self, sdkMarker}
	if r.belay {
		agent = append([]string{h.belay, "acp", "--"}, agent...)
	}
	scenario := map[string]string{sdkPrompt: "prompt", sdkRequest: "request", sdkAsked: "permission", sdkPromptRequest: "prompt request"}[r.event]
	argv := append(slices.Clone(p.client), strconv.Itoa(r.version), scenario)
	argv = append(argv, agent...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Dir = r.env(), r.dir
	var errs bytes.Buffer
	cmd.Stderr = &errs
	force := time.AfterFunc(2*sdkPatience, func() { _ = cmd.Process.Kill() })
	defer force.Stop()
	out, err := cmd.Output()
	if h.verbose {
		_, _ = os.Stderr.Write(errs.Bytes())
	}
	if err != nil {
		return fmt.Errorf("%w: %s %s", err, bytes.TrimSpace(out), cut(strings.TrimSpace(errs.String()), 300))
	}
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		var step struct {
			At         int64
			Event, How string
		}
		if err := json.Unmarshal(lines.Bytes(), &step); err != nil {
			return fmt.Errorf("the client said %q", lines.Text())
		}
		switch step.Event {
		case "stop":
			r.stop = time.UnixMilli(step.At)
		case "end":
			r.told = step.How
		case "next":
			r.next = step.How
		}
	}
	return lines.Err()
}

// sdkPins are the SDKs of the rows that were run, for the head of the page.
func (h *harness) sdkPins() []string {
	if len(h.sdks.lines) == 0 {
		return nil
	}
	return []string{"@agentclientprotocol/sdk 2.4.0 and 1.9.0", "github.com/coder/acp-go-sdk v0.13.5"}
}

// installSDKs brings the SDKs into the cache.
func (h *harness) installSDKs() []sdkPeer {
	var list []sdkPeer
	dir := filepath.Join(h.cache, "acp-sdk")
	if err := pinned.Install(peerFiles, "peers/acp-sdk", dir, pinned.NPM()); err != nil {
		h.peers.miss("TypeScript SDKs of ACP", err)
	} else {
		list = append(list, sdkPeer{
			name:   "TypeScript 2.4.0",
			agent:  func(v int) []string { return []string{"node", filepath.Join(dir, "agent.mjs"), strconv.Itoa(v)} },
			client: []string{"node", filepath.Join(dir, "client.mjs")},
			v2:     true,
		})
		example := func(name string) []string {
			return []string{"node", filepath.Join(dir, "node_modules", "acp-sdk-1", "dist", "examples", name+".js")}
		}
		list = append(list, sdkPeer{
			name: "TypeScript 1.9.0 agent", agent: func(int) []string { return example("agent") },
			events: []string{sdkPrompt, sdkAsked}, allow: "allow",
			// It says end_turn after a permission that was cancelled: the true word of this
			// agent, which the library hands on.
			wants: map[string]string{"agent " + sdkAsked: "end_turn"},
		}, sdkPeer{
			name: "TypeScript 1.9.0 dual-version-agent", agent: func(int) []string { return example("dual-version-agent") },
			events: []string{sdkPrompt}, quick: true, v2: true, // its turns end at once
			wants: map[string]string{"agent " + sdkPrompt: "end_turn"},
		})
	}
	peer, err := buildACPGo(h.cache)
	if err != nil {
		h.peers.miss("Go community SDK of ACP", err)
		return list
	}
	return append(list, sdkPeer{
		name: "coder/acp-go-sdk 0.13.5", agent: func(int) []string { return []string{peer, "agent"} }, client: []string{peer, "client"},
		// Its Prompt returns at once with -32800 and loses the stop reason.
		wants: map[string]string{"client " + sdkPromptRequest: "-32800"},
	})
}

// buildACPGo builds the peer that is a Go module of its own.
func buildACPGo(cache string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "acp-go", "acp-go")
	if err := pinned.Run(filepath.Join(root, "interop", "peers", "acp-go"), nil, []string{"go", "build", "-trimpath", "-o", path, "."}); err != nil {
		return "", err
	}
	return path, nil
}
