package yamldoc

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// size is that of the hostile texts: 200 KB of nested lists took 6 GB.
const size = 200 << 10

func levels(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func times(text string) string { return strings.Repeat(text, size/len(text)) }

// laughs is a list of a list, and so on, each of ten aliases of the one before.
func laughs(n int) string {
	text := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i <= n; i++ {
		alias := fmt.Sprintf("*a%d", i-1)
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.Join([]string{alias, alias, alias, alias, alias, alias, alias, alias, alias, alias}, ", "))
	}
	return text
}

var hostile = map[string]string{
	"lists":              times("["),
	"closed lists":       strings.Repeat("[", size/2) + strings.Repeat("]", size/2),
	"mappings":           times("{a: "),
	"mappings in lists":  times("[a: "),
	"lists of lists":     times("- "),
	"keys":               times("? "),
	"indented mappings":  levels(600),
	"indented lists":     "a:\n" + strings.ReplaceAll(levels(600), "a:", "-"),
	"tags":               times("!a "),
	"anchors":            times("&a "),
	"tagged lists":       times("!a ["),
	"aliases":            "a: &a x\nb: [" + times("*a, ") + "x]",
	"aliases of aliases": laughs(9),
	"documents":          times("---\na: b\n"),
	"mapping":            numbered("k%d: v\n"),
	"colons":             times(": "),
	"mappings in a line": times("a: b: "),
	"few large aliases":  "a: &a [" + strings.Repeat("x, ", 20_000) + "x]\nb: [*a, *a, *a, *a, *a, *a]\n",
}

// harmless are texts of the same size without depth. They are parsed, or are errors of YAML.
var harmless = map[string]string{
	"script":     "script: |\n" + times("  if [ [ { {{ - - - &a *b !c: : ?\n"),
	"quoted":     `a: "` + times("[[{- &a *b ") + `"`,
	"list":       times("- a\n"),
	"flow list":  "[" + times("a, ") + "a]",
	"commas":     "[" + times(",") + "]",
	"comments":   times("# [[[[\n"),
	"blanks":     times(" "),
	"tabs":       times("\t"),
	"lines":      times("\n"),
	"quotes":     times(`"`),
	"single":     times("'"),
	"pipes":      times("|\n"),
	"percents":   times("%a\n"),
	"zero bytes": times("\x00"),
	"not UTF-8":  times("\xff"),
	"closing":    times("]"),
	"own alias":  "a: &a [*a]\n",
	"no anchor":  "a: *b\n",
	"merge":      "a: &a {x: 1}\nb:\n  <<: *a\n  y: 2\n",
}

func numbered(line string) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, line, i)
	}
	return b.String()
}

// TestHostileTextsAreRefused parses hostile texts. They are refused with a line, and none takes much memory.
func TestHostileTextsAreRefused(t *testing.T) {
	const most = 200 << 20
	for _, texts := range []map[string]string{hostile, harmless} {
		for name, text := range texts {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			file, err := Parse([]byte(text), Usual)
			if err == nil && file.Docs[0].Body != nil {
				var v any
				_ = yaml.NodeToValue(file.Docs[0].Body, &v)
			}
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > most {
				t.Errorf("%s: allocated %d MiB, want a few", name, n>>20)
			}
			own, is := errors.AsType[*Error](err)
			if _, bad := hostile[name]; bad != is {
				t.Errorf("%s: %.200v, want it refused exactly if it is hostile", name, err)
			}
			if is && (own.GetToken().Position.Line == 0 || strings.Contains(own.Error(), "\n")) {
				t.Errorf("%s: %q, want one line with a position", name, own.Error())
			}
		}
	}
}

// TestTokensAreBounded parses a text with more values than a bound.
func TestTokensAreBounded(t *testing.T) {
	text := []byte(strings.Repeat("- a\n", 100))
	if _, err := Parse(text, Bounds{200, 1}); err != nil {
		t.Errorf("200 tokens: %v", err)
	}
	if _, err := Parse(text, Bounds{199, 1}); err == nil || !strings.Contains(err.Error(), "[100:") {
		t.Errorf(`more than 199 tokens: %v, want an error and "[100:" in it`, err)
	}
}

// TestUsualTextsHaveLittleDepth checks that usual texts have no depth.
func TestUsualTextsHaveLittleDepth(t *testing.T) {
	list := ""
	for i := range 200 {
		list += fmt.Sprintf("job%d:\n  - a: 1\n    b:\n    - c: {d: [e, f]}\n    - &x%d !t g\n  - *x%d\n", i, i, i)
	}
	if _, err := Parse([]byte(list), Usual); err != nil {
		t.Error(err)
	}
	if _, err := Parse([]byte(levels(maxDepth)), Usual); err != nil {
		t.Errorf("%d levels: %v", maxDepth, err)
	}
	if _, err := Parse([]byte(levels(maxDepth+1)), Usual); err == nil {
		t.Errorf("%d levels are parsed", maxDepth+1)
	}
}

// FuzzParse parses any text, and checks that its memory is proportional to the text.
func FuzzParse(f *testing.F) {
	for _, texts := range []map[string]string{hostile, harmless} {
		for _, text := range texts {
			f.Add([]byte(text[:min(len(text), 300)]))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		const each, most = 20 << 10, 64 << 20
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if file, err := Parse(text, Usual); err == nil {
			for _, doc := range file.Docs {
				var v any
				if doc.Body != nil {
					_ = yaml.NodeToValue(doc.Body, &v)
				}
			}
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > most+uint64(len(text))*each {
			t.Errorf("%d bytes of text took %d MiB, want an amount in proportion", len(text), n>>20)
		}
	})
}
