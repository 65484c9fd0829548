package page_test

// The page in a real browser: Chromium without a window. The tests are skipped if Chromium is not installed.

import (
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/testkit/needtest"
)

// browser opens pages.
type browser struct{ program string }

func newBrowser(t *testing.T) browser {
	t.Helper()
	return browser{needtest.Browser(t)}
}

// opened is the result of opening a page.
type opened struct {
	requests []string // paths
	console  []string
	picture  image.Image
}

// open serves a page on loopback, opens it, and takes a picture.
func (b browser) open(t *testing.T, text string, flags ...string) opened {
	t.Helper()
	var o opened
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		o.requests = append(o.requests, r.URL.Path)
		mu.Unlock()
		if r.URL.Path != "/report.html" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, text)
	}))
	defer server.Close()
	shot := filepath.Join(t.TempDir(), "shot.png")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	args := append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--hide-scrollbars", "--enable-logging=stderr", "--window-size=1280,2600", "--user-data-dir=" + t.TempDir(), "--screenshot=" + shot,
	}, flags...)
	out, err := exec.CommandContext(ctx, b.program, append(args, server.URL+"/report.html")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", b.program, err, out)
	}
	for line := range strings.SplitSeq(string(out), "\n") {
		if strings.Contains(line, ":CONSOLE") {
			o.console = append(o.console, line)
		}
	}
	f, err := os.Open(shot)
	if err != nil {
		t.Fatalf("no picture: %v\n%s", err, out)
	}
	defer f.Close()
	if o.picture, err = png.Decode(f); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	return o
}

// pixels counts the pixels of a color.
func pixels(m image.Image, want color.RGBA) int {
	n := 0
	r := m.Bounds()
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			if color.RGBAModel.Convert(m.At(x, y)) == want {
				n++
			}
		}
	}
	return n
}

// inStyle reads a color of the page's style sheet: the light or the dark one.
func inStyle(t *testing.T, text, name string, dark bool) color.RGBA {
	t.Helper()
	all := regexp.MustCompile(`--`+name+`: (#[0-9a-f]{6});`).FindAllStringSubmatch(text, -1)
	i := 0
	if dark {
		i = 1
	}
	if len(all) != 2 {
		t.Fatalf("the style sheet has the color %s %d times, want 2", name, len(all))
	}
	c := color.RGBA{A: 255}
	if _, err := fmt.Sscanf(all[i][1], "#%02x%02x%02x", &c.R, &c.G, &c.B); err != nil {
		t.Fatal(err)
	}
	return c
}

// The page makes no request, writes no error, and shows its pictures, light and dark.
func TestPageWorksInABrowser(t *testing.T) {
	b := newBrowser(t)
	text := full(t)
	for name, flags := range map[string][]string{"light": {"--blink-settings=preferredColorScheme=1"}, "dark": {"--blink-settings=preferredColorScheme=0"}} {
		o := b.open(t, text, flags...)
		if len(o.requests) != 1 {
			t.Errorf("%s: the page made requests: %q, want 1 of them", name, o.requests)
		}
		if len(o.console) > 0 {
			t.Errorf("%s: the console is not empty:\n%s", name, strings.Join(o.console, "\n"))
		}
		for _, k := range []struct {
			ink   string
			least int
		}{{"gpu-area", 40_000}, {"gpu", 1000}, {"run0-area", 1000}, {"fault-band", 2000}, {"bar", 5000}, {"box", 10_000}, {"heat1", 500}, {"panel", 500_000}} {
			if n := pixels(o.picture, inStyle(t, text, k.ink, name == "dark")); n < k.least {
				t.Errorf("%s: %d pixels have the color %s, want %d", name, n, k.ink, k.least)
			}
		}
	}
}

// The test above would notice a request, an error on the console, and a page without its style.
func TestFaultsOfAPageAreSeenInABrowser(t *testing.T) {
	b := newBrowser(t)
	text := full(t)
	const picture = `<main><img src="/x.png">`
	free := strings.Replace(strings.Replace(text, "Content-Security-Policy", "X-None", 1), "<main>", picture, 1)
	if o := b.open(t, free); len(o.requests) != 2 {
		t.Errorf("a picture from elsewhere, without a policy: requests are %q, want 2 of them", o.requests)
	}
	// The policy allows neither the picture, nor the script, nor a style sheet that was changed.
	spoilt := strings.Replace(strings.Replace(text, "<style>", "<style> ", 1), "<main>", picture+"<script>alert(1)</script>", 1)
	if o := b.open(t, spoilt); len(o.requests) != 1 || len(o.console) < 3 || pixels(o.picture, inStyle(t, text, "gpu-area", false)) > 0 {
		t.Errorf("violations of the policy: requests are %q, the console has %q, want one request and errors", o.requests, o.console)
	}
}
