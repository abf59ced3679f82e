package main

import "encoding/json"

// turnReceipt is what Belay says about the last turn that was stopped: its
// verdict, and "not final" while Belay is still at it; "" = it says nothing.
func (h *harness) turnReceipt(env []string) string {
	var list []struct {
		Kind    string `json:"kind"`
		Verdict string `json:"verdict"`
		Final   bool   `json:"final"`
	}
	out, err := h.commandIn(env, "receipts", "--json")
	if err := json.Unmarshal(out, &list); err != nil {
		h.logf("belay receipts: %v: %s", err, out)
	}
	h.logf("belay receipts: %v: %s", err, out)
	for _, r := range list { // the newest comes first
		switch {
		case r.Kind == "turn" && r.Final:
			return r.Verdict
		case r.Kind == "turn":
			return r.Verdict + ", not final"
		}
	}
	return ""
}
