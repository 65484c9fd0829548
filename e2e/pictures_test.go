//go:build e2e

package e2e

// The pictures of the README, from a real run: `make pictures` makes them again. Without it, the test only checks that
// they could be made, and that they show what the README says.

import (
	"flag"
	"fmt"
	"html"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/musterhq/muster/api"
)

var pictures = flag.Bool("pictures", false, "write the pictures of the README to docs")

const maxPicture = 200 << 10 // so that the README loads fast

// picture takes a screenshot for docs/NAME.png.
func (b *viewer) picture(name string) {
	b.t.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err == nil && *pictures {
		err = os.WriteFile(filepath.Join("../docs", name+".png"), png, 0o644) //nolint:gosec // as all files of the sources
	}
	if err != nil {
		b.t.Fatal(err)
	}
	if len(png) > maxPicture {
		b.t.Errorf("%s.png: got %d bytes, want at most %d", name, len(png), maxPicture)
	}
}

func TestPicturesShowWhatTheReadmeSays(t *testing.T) {
	chromiumProgram(t)
	flags := []string{"--gpus", "sim:4xH100-80GB", "--cpus", "32", "--memory", "256GiB"}
	first := newDaemon(t, "gpu1", flags...).start()
	inv := first.invite("--uses", "2")
	for _, name := range []string{"gpu2", "gpu3"} {
		newDaemon(t, name, flags...).start(inv.flags()...)
	}
	first.untilNodes(3)
	b := browse(t, first.front(), 1240, 760)
	b.open("/")
	b.shows("Capacity")
	evalIn[string](b, "localStorage.setItem('muster.theme', 'light'), ''")
	b.open("/")
	someJobs(first)

	b.shows("h100-80gb", "sim", "sweep", "array 0-39%3", "gang of 3", "finetune", "Resources", "Dependency", "Held", "FAILED")
	if *pictures { // the chart has its first points after half a minute
		b.until("draw the chart", func() bool { return evalIn[bool](b, "Boolean(document.querySelector('figure canvas'))") })
	}
	b.picture("dashboard")

	p := inTmux(t, 100, 30, []string{"MUSTER_SOCKET=" + first.socket}, first.program, "top")
	p.shows("12 GPUs", "TIME")
	p.keys("g")
	p.shows("h100-80gb (sim)", "root/finetune", "of 40 run", "pretrain", "Resources", "50W")
	screen, err := p.tmux("capture-pane", "-p", "-e")
	if err != nil {
		t.Fatal(err)
	}
	b.run("show the terminal", chromedp.EmulateViewport(843+32, 30*20+32), chromedp.Navigate("data:text/html;charset=utf-8,"+url.PathEscape(terminalPage(screen))))
	b.until("draw the terminal", func() bool { return strings.Contains(evalIn[string](b, "document.body.innerText"), "muster top") })
	if wide := evalIn[int](b, "document.querySelector('pre').scrollWidth - innerWidth"); wide > 0 {
		t.Errorf("the terminal is %d pixels too wide, want 0", wide)
	}
	b.picture("top")
}

// someJobs submits the jobs of the pictures, and waits until each runs, waits or has ended.
func someJobs(d *daemon) {
	submit := func(args ...string) string { return d.ok(append([]string{"submit"}, args...)...) }
	gang := submit("-J", "finetune", "-N", "3", "-G", "H100:6", "-c", "8", "--mem", "64GiB", "-t", "12h", "--", "sleep", "600")
	d.untilDoc(gang, "RUNNING", func(j api.Job) bool { return j.State == "RUNNING" })
	book := submit("-J", "notebook", "--gpu-share", "0.5", "-c", "2", "--mem", "16GiB", "--", "sleep", "600")
	done := submit("-J", "tokenize", "-c", "4", "--", "true")
	failed := submit("-J", "smoke-test", "--", "sh", "-c", "echo 'ValueError: loss is NaN' >&2; exit 1")
	sweep := submit("-J", "sweep", "-a", "0-39%3", "-G", "1", "-c", "4", "--mem", "16GiB", "-t", "2h", "--", "sleep", "8")
	submit("-J", "pretrain", "-N", "3", "-G", "12", "--priority", "40", "-t", "2d", "--", "sleep", "600")
	submit("-J", "big", "-G", "4", "--mem", "128GiB", "-t", "1d", "--", "sleep", "600")
	submit("-J", "eval", "-d", "afterok:"+gang, "-G", "1", "--", "true")
	submit("-J", "report", "--hold", "--", "true")
	d.untilState(book, "RUNNING")
	d.untilState(done, "SUCCEEDED")
	d.untilState(failed, "FAILED")
	d.untilDoc(sweep, "under way", func(j api.Job) bool { return j.Counts["SUCCEEDED"] >= 3 })
}

var sgr = regexp.MustCompile(`\x1b\[([0-9;]*)m`)

// terminalPage returns a screen of a terminal as a page. It knows the sequences that tmux writes for colours and
// weights.
func terminalPage(screen string) string {
	colours := []string{"#79818c", "#ff8f86", "#7fd39a", "#e8c068", "#8ab6ff", "#e0a0f2", "#74d4de", "#cfd4da"}
	var b strings.Builder
	b.WriteString("<!doctype html><title>muster top</title><style>body{margin:0;background:#14161a}pre{margin:16px;color:#dfe2e6;font:14px/20px 'DejaVu Sans Mono',monospace}" +
		"b{color:#fff}i{font-style:normal;opacity:.6}u{text-decoration:none;background:#dfe2e6;color:#14161a}</style><pre>")
	open := "" // tags, to be closed in reverse
	look := map[string]string{}
	at := 0
	write := func(text string) {
		for _, tag := range []string{"b", "i", "u", "c"} {
			if look[tag] != "" {
				b.WriteString("<" + look[tag] + ">")
				open = "</" + strings.Fields(look[tag])[0] + ">" + open
			}
		}
		b.WriteString(html.EscapeString(text) + open)
		open = ""
	}
	for _, m := range sgr.FindAllStringSubmatchIndex(screen, -1) {
		write(screen[at:m[0]])
		at = m[1]
		for code := range strings.SplitSeq(screen[m[2]:m[3]], ";") {
			switch n, _ := strconv.Atoi(code); {
			case n == 0:
				clear(look)
			case n == 1:
				look["b"] = "b"
			case n == 2:
				look["i"] = "i"
			case n == 7:
				look["u"] = "u"
			case n >= 30 && n <= 37:
				look["c"] = fmt.Sprintf("span style=color:%s", colours[n-30])
			case n == 39:
				delete(look, "c")
			}
		}
	}
	write(screen[at:])
	return b.String()
}
