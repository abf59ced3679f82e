package config

import (
	"testing"
	"time"
)

func TestNewScripts(t *testing.T) {
	s := NewScripts("tools", Policy{ToolPolicy: ToolPolicy{Grace: Some(time.Second)}}, "/a", "/b")
	if s.Name != "tools" || len(s.Scripts.Dirs) != 2 || s.Scripts.ApprovalTimeout != 10*time.Minute || s.Scripts.AutoApprove ||
		s.Isolation.Value != "call" || s.Restart.Value != "safe" || s.Grace.Value != time.Second {
		t.Errorf("%+v, scripts %+v", s, s.Scripts)
	}
}
