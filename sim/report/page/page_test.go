package page_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/musterhq/muster/sim/report"
	"github.com/musterhq/muster/sim/report/page"
	"github.com/musterhq/muster/sim/report/reporttest"
)

func TestDraft(t *testing.T) {
	var b bytes.Buffer
	if err := page.Write(&b, reporttest.Document(7), report.Named{Name: "before.json", Doc: reporttest.Document(8)}); err != nil {
		t.Fatal(err)
	}
	os.WriteFile("/tmp/report.html", b.Bytes(), 0o644)
}
