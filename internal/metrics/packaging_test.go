package metrics

// The shipped dashboard and rules use only series and labels that exist.

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/testkit/rulestest"
)

var (
	quoted = regexp.MustCompile(`"[^"]*"`)
	word   = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
	// words of PromQL and of the dashboard that are no series.
	words = strings.Fields(`sum avg count by on and or group_left group_right rate increase histogram_quantile time absent vector label_replace label_values
		__rate_interval node gpu m h s d`)
)

// parts returns the names of series, and of labels, in an expression.
func parts(expr string) (names, labels []string) {
	expr = quoted.ReplaceAllString(expr, `""`)
	expr = regexp.MustCompile(`\[[^\]]*\]`).ReplaceAllString(expr, "")
	for _, group := range regexp.MustCompile(`\{[^}]*\}|\b(by|on|group_left|group_right) *\([^)]*\)`).FindAllString(expr, -1) {
		for _, name := range word.FindAllString(group, -1) {
			if !slices.Contains(words, name) {
				labels = append(labels, name)
			}
		}
		expr = strings.Replace(expr, group, " ", 1)
	}
	if of, label, ok := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(expr, "label_values("), ")"), ","); ok && strings.HasPrefix(expr, "label_values(") {
		expr, labels = of, append(labels, strings.TrimSpace(label))
	}
	for _, name := range word.FindAllString(expr, -1) {
		if !slices.Contains(words, name) {
			names = append(names, name)
		}
	}
	return names, labels
}

// expressions returns all expressions of the shipped files, and the names that the rules record.
func expressions(t *testing.T) (all map[string]string, recorded []string) {
	t.Helper()
	all = map[string]string{}
	for _, r := range rulestest.Rules(t, "../../packaging/prometheus") {
		all[r.File+" "+r.Alert+r.Record] = r.Expr
		if r.Record != "" {
			recorded = append(recorded, r.Record)
		}
	}
	text, err := os.ReadFile("../../packaging/grafana/muster.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Templating struct {
			List []struct{ Name, Type, Definition string }
		}
		Panels []struct {
			ID      int
			Title   string
			Type    string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q has no expression, want one", p.Title)
		}
		for _, x := range p.Targets {
			all["panel "+p.Title+" "+x.Expr] = x.Expr
		}
	}
	for _, v := range board.Templating.List {
		if v.Type == "query" {
			all["variable "+v.Name] = v.Definition
		}
	}
	return all, recorded
}

func TestShippedExpressionsUseExistingSeries(t *testing.T) {
	all, recorded := expressions(t)
	if len(all) < 40 {
		t.Fatalf("got %d expressions, want at least 40", len(all))
	}
	names, labels := append([]string{"up"}, recorded...), strings.Fields("instance node_id job Hostname modelName UUID le")
	for _, line := range series(t, gather(t, full(1, 1))) {
		names = append(names, word.FindString(line))
		if _, inside, ok := strings.Cut(line, "{"); ok {
			for _, l := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(inside, -1) {
				labels = append(labels, l[1])
			}
		}
	}
	for where, expr := range all {
		used, by := parts(expr)
		if len(used) == 0 {
			t.Errorf("%s: got no series in %s, want one", where, expr)
		}
		for _, name := range used {
			if !slices.Contains(names, name) {
				t.Errorf("%s: there is no series %s", where, name)
			}
		}
		for _, label := range by {
			if !slices.Contains(labels, label) {
				t.Errorf("%s: no series has a label %s", where, label)
			}
		}
	}
	if used, by := parts(`sum by (nothing) (rate(muster_nothing{bad="x"}[5m])) > 0`); !slices.Equal(used, []string{"muster_nothing"}) || !slices.Equal(by, []string{"nothing", "bad"}) {
		t.Errorf("got the parts %q and %q, want muster_nothing, and nothing and bad", used, by)
	}
}
