package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/musterhq/muster/job"
)

// code are the files that a browser runs or draws with.
var code = []string{".js", ".mjs", ".css", ".html", ".svg"}

// maxCode bounds the compressed dashboard, with the terminal, which is loaded only when it is used.
const maxCode = 250 << 10

// each calls do with the files of the dashboard.
func each(t *testing.T, do func(name string, text []byte)) {
	t.Helper()
	err := fs.WalkDir(files, "files", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, name)
		do(strings.TrimPrefix(name, "files/"), text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func isCode(name string) bool {
	for _, kind := range code {
		if path.Ext(name) == kind {
			return true
		}
	}
	return false
}

// Vendored files are the published ones.
func TestVendoredFilesAreThePublishedOnes(t *testing.T) {
	list, err := fs.ReadFile(files, "files/vendor/VENDORED.txt")
	if err != nil {
		t.Fatal(err)
	}
	licences, err := fs.ReadFile(files, "files/vendor/LICENSES.txt")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string][]string{}
	for line := range strings.Lines(string(list)) {
		if row := strings.Split(strings.TrimSpace(line), " | "); len(row) == 7 && row[0] != "file" {
			known[row[0]] = row
		}
	}
	seen := 0
	each(t, func(name string, text []byte) {
		name, vendored := strings.CutPrefix(name, "vendor/")
		if !vendored || path.Ext(name) == ".txt" {
			return
		}
		row := known[name]
		if row == nil {
			t.Errorf("VENDORED.txt does not say where %s is from", name)
			return
		}
		seen++
		if before, after, changed := strings.Cut(row[6], " > "); changed {
			text = bytes.ReplaceAll(text, []byte(after), []byte(before))
		}
		if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != row[5] {
			t.Errorf("%s is not the file of %s %s", name, row[1], row[2])
		}
		if !bytes.Contains(licences, fmt.Appendf(nil, "==== %s %s ====\n", row[1], row[2])) {
			t.Errorf("LICENSES.txt does not have the licence of %s %s", row[1], row[2])
		}
	})
	if seen != len(known) || seen == 0 {
		t.Errorf("VENDORED.txt lists %d files, want %d", len(known), seen)
	}
}

func TestDashboardIsSmall(t *testing.T) {
	total := 0
	each(t, func(name string, text []byte) {
		if !isCode(name) {
			return
		}
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, err := w.Write(text)
		if err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		total += b.Len()
		if lines := bytes.Count(text, []byte("\n")); lines > 400 && !strings.HasPrefix(name, "vendor/") {
			t.Errorf("%s has %d lines, at most 400 are allowed", name, lines)
		}
	})
	t.Logf("%d bytes of compressed code", total)
	if total > maxCode {
		t.Errorf("%d bytes of compressed code, at most %d are allowed", total, maxCode)
	}
}

var (
	comment   = regexp.MustCompile(`(?s)/\*.*?\*/|(?m)(^|[\s;,{}()])//[^\n]*|#\s*sourceMappingURL[^\n]*`)
	elsewhere = regexp.MustCompile(`https?://[^\s"'\x60)]+`)
	// Names of XML languages, which nothing loads.
	languages = []string{"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml", "http://www.w3.org/1998/Math/MathML"}
	// Calls that turn text into code or markup.
	dangerous = regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|srcdoc|\beval\(|new Function|DOMParser|\sstyle="|javascript:`)
)

// Nothing is loaded from other hosts: the dashboard works without the internet.
func TestDashboardLoadsNothingFromElsewhere(t *testing.T) {
	each(t, func(name string, text []byte) {
		if !isCode(name) {
			return
		}
	addresses:
		for _, a := range elsewhere.FindAllString(comment.ReplaceAllString(string(text), " "), -1) {
			for _, l := range languages {
				if a == l {
					continue addresses
				}
			}
			t.Errorf("%s names the address %s, want none of other hosts", name, a)
		}
	})
}

// Texts of tasks and users never become markup or code.
func TestTextsNeverBecomeMarkup(t *testing.T) {
	each(t, func(name string, text []byte) {
		if !isCode(name) || strings.HasPrefix(name, "vendor/") {
			return
		}
		if found := dangerous.FindString(string(text)); found != "" {
			t.Errorf("%s uses %q, want an empty text", name, found)
		}
	})
}

var imports = regexp.MustCompile(`(?m)^(?:import|export)\b[^'"\n]*?['"](\.[^'"]+)['"]`)

// The page names all modules that it needs at once, so that a browser does not find them one after another.
func TestPageNamesAllItsModules(t *testing.T) {
	page, err := fs.ReadFile(files, "files/index.html")
	if err != nil {
		t.Fatal(err)
	}
	needed, todo := map[string]bool{}, []string{"app.js"}
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		text, err := fs.ReadFile(files, "files/"+name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range imports.FindAllSubmatch(text, -1) {
			if to := path.Join(path.Dir(name), string(m[1])); !needed[to] {
				needed[to] = true
				todo = append(todo, to)
			}
		}
	}
	if len(needed) < 20 {
		t.Fatalf("got %d modules, want at least 20", len(needed))
	}
	for name := range needed {
		if !bytes.Contains(page, fmt.Appendf(nil, `<link rel="modulepreload" href="/ui/-/%s">`, name)) {
			t.Errorf("index.html does not preload %s", name)
		}
	}
	for _, m := range regexp.MustCompile(`modulepreload" href="/ui/-/([^"]+)"`).FindAllSubmatch(page, -1) {
		if !needed[string(m[1])] {
			t.Errorf("index.html preloads %s, which is not needed at once", m[1])
		}
	}
}

// All modules are correct, and import only what exists.
func TestModulesAreCorrect(t *testing.T) {
	tools, err := filepath.Abs("../../tools/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	// On a new machine this loads and builds esbuild, and go reports that on its standard error.
	esbuild, err := exec.CommandContext(t.Context(), "go", "tool", "-modfile="+tools, "-n", "esbuild").Output()
	if err != nil {
		t.Fatalf("go tool esbuild: %v", err)
	}
	out := filepath.Join(t.TempDir(), "out")
	cmd := exec.CommandContext(t.Context(), strings.TrimSpace(string(esbuild)), "--bundle", "--splitting", "--format=esm", "--log-level=warning", "--outdir="+out, "files/app.js")
	text, err := cmd.CombinedOutput()
	if err != nil || len(text) > 0 {
		t.Errorf("esbuild: %v\n%s\nwant 0", err, text)
	}
}

// The dashboard has the states and reasons of package job.
func TestWordsOfJobs(t *testing.T) {
	text, err := fs.ReadFile(files, "files/states.js")
	if err != nil {
		t.Fatal(err)
	}
	line := func(begin string, words []string) {
		if want := begin + " = ['" + strings.Join(words, "', '") + "'];\n"; !bytes.Contains(text, []byte(want)) {
			t.Errorf("states.js lacks the line %s", want)
		}
	}
	var ended []string
	for _, s := range job.States() {
		if s.Ended() {
			ended = append(ended, string(s))
		}
		if want := fmt.Sprintf("'%s']", s.Code()); !bytes.Contains(text, []byte(want)) {
			t.Errorf("states.js lacks the code %s of %s", s.Code(), s)
		}
	}
	line("const ENDED", ended)
	line("export const BARRING", job.BarringReasons())
}
