package demo

import (
	"time"

	"github.com/belayhq/belay"
)

// Side is one playing of a scene.
type Side struct {
	WentOn  time.Duration   `json:"went_on_ns"`         // how long the tool worked after the Stop
	Still   bool            `json:"still_working"`      // it was still working when the watch ended
	Left    int             `json:"left_alive"`         // processes of the stopped work that were left alive
	Told    string          `json:"client_told"`        // what the client got for the stopped call
	Others  string          `json:"others,omitempty"`   // how the work beside it fared
	Harmed  bool            `json:"harmed,omitempty"`   // work beside it was harmed
	Verdict []belay.Verdict `json:"verdicts,omitempty"` // of the receipts
	OK      bool            `json:"ok"`                 // under Belay: all as promised
	Error   string          `json:"error,omitempty"`    // the scene could not be played
}

// Row is one scene with both its sides.
type Row struct {
	Scene string `json:"scene"`
	About string `json:"about"`
	Bare  Side   `json:"bare"`
	Belay Side   `json:"belay"`
	Skip  string `json:"skipped,omitempty"` // why the scene was not played
}

// Report is the whole demo.
type Report struct {
	Rows []Row         `json:"scenes"`
	Took time.Duration `json:"took_ns"`
	OK   bool          `json:"ok"`
}

// judge decides what a side under Belay is worth. answers says that the tool
// itself answers a cancel, so that its word is enough.
func (s *Side) judge(receipts []belay.Receipt, err error, answers bool) {
	if err != nil {
		s.Error = err.Error()
		return
	}
	s.OK = !s.Harmed && !s.Still && s.Left == 0
	for i := range receipts {
		r := &receipts[i]
		s.Verdict = append(s.Verdict, r.Verdict)
		if r.Verdict != belay.Confirmed && !(answers && r.Verdict == belay.Acknowledged && r.OK()) {
			s.OK = false
		}
	}
}
