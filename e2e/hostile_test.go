//go:build e2e

package e2e

// Hostile text of users and hosts, in names, reasons, commands, output and names of files. What the daemon accepts, the
// dashboard shows as text.

import (
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

const (
	evil = `<script>document.title='taken'</script>"'&amp;`
	// evilFile is also valid as the name of a file, and evilText has several lines, a link and a write to the
	// clipboard.
	evilFile = `<img src=x onerror=document.title='taken'>`
	evilText = evilFile + "\n\x1b]8;;http://evil.example/\x1b\\link\x1b]8;;\x1b\\\x1b]52;c;aGVsbG8=\a\x1b[2J\xff"
)

// TestHostileNamesAreRefused gives daemons names and labels, and jobs names, that are no plain text.
func TestHostileNamesAreRefused(t *testing.T) {
	amy := newDaemon(t, "amy", "--gpus", "none").start()
	for _, name := range []string{"a\nb", "a\x1b]0;title\ab", "a\xffb", "\u202eexe.gnp"} {
		amy.fails(2, []string{"only printable characters"}, "submit", "--name="+name, "--", "true")
	}
	amy.fails(2, []string{"not UTF-8 text"}, "submit", "--", "echo", "\xff")
	for _, x := range []string{evil, evilFile, "a\nb", "a\x1b]52;c;aGk=\a", "a\xff", "a b", "\u202ea"} {
		for _, flag := range []string{"--name=" + x, "--label=k=" + x, "--label=" + x + "=v"} {
			cmd := exec.Command(amy.program, "daemon", "--data-dir", filepath.Join(t.TempDir(), "d"), "--socket", filepath.Join(amy.dir, "s"), flag)
			out, err := cmd.CombinedOutput()
			if err == nil || cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "letters, digits and ._-") || !utf8.Valid(out) || strings.ContainsAny(string(out), "\x1b\u202e") {
				t.Errorf("daemon %q: got %v, %q, want exit code 2 and the allowed letters", flag, err, out)
			}
		}
	}
}

// harmless checks that no text of others became part of the page or ran, and that it has no control character.
func (b *viewer) harmless() {
	b.t.Helper()
	where := evalIn[string](b, "location.pathname")
	if n := evalIn[int](b, "document.querySelectorAll('main script, main a[href*=evil], main iframe, main img').length"); n != 0 {
		b.t.Errorf("%s: got %d elements made of text, want 0", where, n)
	}
	if title := evalIn[string](b, "document.title"); title == "taken" || strings.Contains(title, "hostile title") {
		b.t.Errorf("%s: text set the title %q, want another than %q and a text without %q", where, title, "taken", "hostile title")
	}
	if text := evalIn[string](b, pageText); strings.ContainsAny(text, "\x1b\a\u202e") {
		b.t.Errorf("%s: got control characters in %q", where, text)
	}
}

// TestDashboardShowsHostileTextAsText shows hostile names, labels and output.
func TestDashboardShowsHostileTextAsText(t *testing.T) {
	amy, _, base := withPage(t)
	id := amy.ok("submit", "--name="+evil, "--", "sh", "-c", `printf '%s\n' "$0"; printf '\033]8;;http://evil.example/\033\\link\033]8;;\033\\ \033]52;c;aGVsbG8=\007clip\n\377\376bad\n\033[2J\033[Hcleared\nunended \033]0;title\nnext\n'; head -c 5000000 /dev/zero | tr '\0' x; printf '\nlast\n'; sleep 300`, evil)
	amy.untilState(id, "RUNNING")
	b := browse(t, base, 1280, 800)
	b.open("/")
	b.shows("Capacity")
	for _, path := range []string{"/", "/jobs", "/jobs/" + id, "/jobs/" + id + "/why", "/nodes/amy"} {
		b.open(path)
		b.shows(evil)
		b.harmless()
	}
	b.open("/jobs/" + id + "/log")
	b.shows("last")
	evalIn[bool](b, "document.querySelector('.log').focus() || true")
	b.press(kb.Home)
	b.shows(evil, "link clip", "\uFFFD\uFFFDbad", "cleared", "next")
	shown := evalIn[string](b, "document.querySelector('.log').innerText")
	for _, hidden := range []string{"evil.example", "aGVsbG8", "\x1b", "]52", "title"} {
		if strings.Contains(strings.ReplaceAll(shown, evil, ""), hidden) {
			t.Errorf("the log shows %q, want it escaped", hidden)
		}
	}
	b.harmless()
}

// TestDashboardShowsHostileReasonsAsText shows hostile reasons, ends of an error output, names of files, a terminal and
// a search.
func TestDashboardShowsHostileReasonsAsText(t *testing.T) {
	amy, _, base := withPage(t)
	runs := amy.ok("submit", "--", "sh", "-c", `touch "$0"; printf '%s' "$1" > said; sleep 300`, evilFile, strings.ToValidUTF8(evilText, "")+"\x1b]0;hostile title\a.")
	failed := amy.ok("submit", "--", "sh", "-c", `printf '%s\n\377' "$0" >&2; exit 3`, strings.ToValidUTF8(evilText, ""))
	amy.untilState(runs, "RUNNING")
	amy.untilState(failed, "FAILED")
	ended := amy.ok("submit", "--hold", "--", "true")
	amy.ok("cancel", ended, "--reason", evilText)
	amy.ok("node", "drain", "ben", "--reason", evilText)
	b := browse(t, base, 1280, 800)
	b.open("/")
	b.shows("Capacity")
	for _, path := range []string{"/jobs/" + failed, "/jobs/" + failed + "/why", "/jobs/" + ended, "/jobs", "/nodes", "/nodes/ben"} {
		b.open(path)
		b.shows(evilFile)
		b.harmless()
	}
	b.open("/jobs/" + runs + "/files")
	b.click("List")
	b.shows(evilFile, "said")
	b.harmless()

	b.open("/jobs/" + runs + "/exec")
	evalIn[bool](b, "window.copied = 0, navigator.clipboard.writeText = async () => { window.copied++; }, true")
	b.click("Run it in the task")
	b.shows("open")
	b.run("type", chromedp.KeyEvent("cat said"+kb.Enter))
	b.until("show the output", func() bool {
		return strings.Contains(evalIn[string](b, "document.querySelector('.xterm-rows, .terminal').textContent"), "link")
	})
	b.harmless()
	if n := evalIn[int](b, "window.copied"); n != 0 {
		t.Errorf("a terminal wrote to the clipboard %d times, want 0", n)
	}

	b.open("/docs/search?q=" + url.QueryEscape(evil))
	if got := evalIn[string](b, "document.querySelector('input').value"); got != evil {
		t.Errorf("the search asks for %q, want %v", got, evil)
	}
	b.harmless()
}
