package adopt

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocs: the examples of docs/adopt.md are what happens.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "adopt.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```(json|yaml)\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 5 {
		t.Fatalf("%d blocks", len(blocks))
	}
	o := options(t)
	for i := 0; i < 4; i += 2 {
		before, after := blocks[i][2], blocks[i+1][2]
		if p := must(t, o, false, []byte(before)); string(p.after) != after {
			t.Errorf("adopted, the example is\n%s", p.after)
		}
		if p := must(t, o, true, []byte(after)); string(p.after) != before {
			t.Errorf("undone, the example is\n%s", p.after)
		}
	}
	if e, err := parseEditors("docs", []byte(blocks[4][2])); err != nil || len(e.Forms) != 2 || len(e.Files) != 1 || e.Forms[1].Starts != Agent {
		t.Errorf("%v, %+v", err, e)
	}
	for _, f := range o.Editors.Forms {
		if where := strings.Join(f.At, "."); !strings.Contains(string(text), "`"+where+"`") {
			t.Errorf("the form %s is not in the table", where)
		}
	}
}
