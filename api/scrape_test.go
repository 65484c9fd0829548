package api

// Metrics of all nodes through one daemon, false answers of daemons, and wrong tokens.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// measured is a daemon on which a task of bob and one of eve run.
type measured struct{ d *daemon }

func (m measured) Collect(_ context.Context, sees func(string) bool, to chan<- prometheus.Metric) {
	desc := prometheus.NewDesc("muster_task_cpus", "CPUs.", []string{"node", "user"}, nil)
	for _, user := range []string{"bob", "eve"} {
		if sees(user) {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, 1, m.d.name, user)
		}
	}
}

// One address suffices: the list has an entry for each node, and each answers through the daemon that was asked.
func TestMetricsOfAllNodesComeThroughOneDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "cat")
		amy := c.daemons[0]
		status, kind, text := amy.raw(t, "GET", "/v1/metrics/targets", "")
		var list []Target
		if err := json.Unmarshal([]byte(text), &list); err != nil || status != 200 || kind != "application/json" || len(list) != 3 {
			t.Fatalf("targets: got %d %s %v: %s, want 3 in JSON", status, kind, err, text)
		}
		for _, x := range list {
			name := x.Labels["node"]
			if len(x.Targets) != 1 || x.Targets[0] != "127.0.0.1:1" || x.Labels["instance"] != name || x.Labels["node_id"] == "" {
				t.Errorf("target: got %+v, want the address of amy with the labels of the node", x)
			}
			status, kind, text := amy.raw(t, "GET", x.Labels["__metrics_path__"], "")
			if status != 200 || kind != contentMetrics || !strings.Contains(text, `muster_task_cpus{node="`+name+`",user="bob"} 1`) {
				t.Errorf("%s: got %d %s %s, want the metrics of the node", name, status, kind, text)
			}
		}
		if _, _, text := amy.raw(t, "GET", "/metrics", ""); !strings.Contains(text, `muster_task_cpus{node="amy",user="eve"} 1`) || !strings.Contains(text, "muster_api_streams") {
			t.Errorf("/metrics: got %s, want the task and the streams", text)
		}
		if status, _, _ := amy.raw(t, "GET", "/v1/nodes/nobody/metrics", ""); status != http.StatusNotFound {
			t.Errorf("an unknown node: got status %d, want 404", status)
		}
		c.daemons[1].silence()
		began := time.Now()
		if status, _, _ := amy.raw(t, "GET", "/v1/nodes/ben/metrics", ""); status != http.StatusServiceUnavailable || time.Since(began) > scrapeWait+time.Second {
			t.Errorf("a silent node: got status %d after %s, want 503 in time", status, time.Since(began))
		}
	})
}

func (d *daemon) silence() { close(d.silent) }

// An answer of another daemon is passed on as metrics or not at all, and never as anything that a browser would show as
// a page.
func TestMetricsOfALyingDaemonAreCleaned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		path := "/v1/nodes/" + string(ben.peer) + "/metrics"
		for name, lie := range map[string]struct {
			status int
			header http.Header
			body   string
			want   string // empty: refused
		}{
			"metrics":              {200, nil, "muster_a{x=\"1\"} 2\n", "# TYPE muster_a untyped\nmuster_a{x=\"1\"} 2\n"},
			"as a page":            {200, http.Header{"Content-Type": {"text/html"}, "Set-Cookie": {"a=b"}}, "muster_a 1\n", "# TYPE muster_a untyped\nmuster_a 1\n"},
			"times":                {200, nil, "muster_a 1 99999999999999\n", "# TYPE muster_a untyped\nmuster_a 1\n"},
			"of others":            {200, nil, "up 1\nnode_load1 3\nALERTS 1\nmuster_a 1\n", "# TYPE muster_a untyped\nmuster_a 1\n"},
			"a page":               {200, nil, "<html><script>alert(1)</script>", ""},
			"no text":              {200, nil, "\x00\xff\xfe", ""},
			"half":                 {200, nil, "muster_a{x=\"1", ""},
			"a redirect":           {302, http.Header{"Location": {"http://evil.example"}}, "", ""},
			"a refusal":            {404, nil, "<script>", ""},
			"too long":             {200, nil, strings.Repeat("# a comment that says nothing at all, and again nothing\n", maxScrape/56+10), ""},
			"too many lines":       {200, nil, strings.Repeat("muster_a 1\n", maxScrapeLines+1), ""},
			"too many labels":      {200, nil, "muster_a{" + strings.Repeat("a=\"\",", maxScrapeLabels+1) + "} 1\n", ""},
			"nothing":              {200, nil, "", ""},
			"a name for its own":   {200, nil, "muster_a{__name__=\"up\"} 1\n", ""},
			"a value that is none": {200, nil, "muster_a x\n", ""},
		} {
			ben.mu.Lock()
			ben.lies = map[string]any{path: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				maps.Copy(w.Header(), lie.header)
				w.WriteHeader(lie.status)
				_, _ = w.Write([]byte(lie.body))
			})}
			ben.mu.Unlock()
			status, kind, text := amy.raw(t, "GET", path, "")
			switch {
			case name == "nothing":
				if status != 200 || text != "" || kind != contentMetrics {
					t.Errorf("%s: got %d %s %q, want empty metrics", name, status, kind, text)
				}
			case lie.want == "" && (status != http.StatusServiceUnavailable || kind != contentProb):
				t.Errorf("%s: got %d %s %.200q, want 503", name, status, kind, text)
			case lie.want != "" && (status != 200 || kind != contentMetrics || text != lie.want):
				t.Errorf("%s: got %d %s %q, want %q", name, status, kind, text, lie.want)
			}
		}
	})
}

// With the setting visibility own, metrics name no user but the one who asks.
func TestMetricsHideOtherUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		for _, d := range c.daemons {
			d.server.auth.ownOnly, d.server.auth.httpUser = true, "bob"
		}
		for _, path := range []string{"/metrics", "/v1/nodes/amy/metrics", "/v1/nodes/ben/metrics"} {
			if _, _, text := c.daemons[0].raw(t, "GET", path, ""); !strings.Contains(text, `user="bob"`) || strings.Contains(text, `user="eve"`) {
				t.Errorf("%s for bob: got %s, want bob only", path, text)
			}
		}
	})
}

// The token for metrics gives access to them, of all users, and to nothing else. The other token still gives access to
// everything.
func TestTokenForMetricsOpensNothingElse(t *testing.T) {
	dir := t.TempDir()
	all, own := filepath.Join(dir, "all"), filepath.Join(dir, "own")
	write := func(file, token string) {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(all, "everything-everything")
	write(own, "metrics-metrics-metrics")
	d, cfg, _ := serve(t, func(c *Config) { c.TokenFile, c.MetricsTokenFile, c.OwnOnly = all, own, true })
	ask := func(method, path, token string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+d.server.HTTPAddr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var text bytes.Buffer
		_, _ = text.ReadFrom(resp.Body)
		return resp.StatusCode, text.String()
	}
	for _, path := range []string{"/metrics", "/v1/metrics/targets", "/v1/nodes/" + d.name + "/metrics"} {
		for token, want := range map[string]int{"metrics-metrics-metrics": 200, "everything-everything": 200, "metrics": 401, "": 401} {
			if status, text := ask("GET", path, token); status != want {
				t.Errorf("%s with %q: got %d %s, want %d", path, token, status, text, want)
			}
		}
		if _, text := ask("GET", path, "metrics-metrics-metrics"); !strings.Contains(text, `user="eve"`) && !strings.Contains(text, "targets") {
			t.Errorf("%s: got %s, want those of all users with the token for metrics", path, text)
		}
	}
	for _, request := range []string{
		"GET /v1/jobs", "GET /v1/nodes", "GET /v1/nodes/" + d.name, "GET /v1/daemon", "GET /openapi.json", "GET /health", "GET /v1/events",
		"POST /v1/jobs", "POST /v1/tickets", "POST /v1/invitations", "POST /v1/nodes/" + d.name + "/drain", "POST /metrics", "DELETE /v1/nodes/x/metrics",
		"GET /v1/nodes/x%2Fmetrics", "GET /v1/nodes/" + d.name + "/metrics/../drain", "GET /v1/nodes//metrics", "GET /metrics/", "GET /metrics/../v1/jobs",
	} {
		method, path, _ := strings.Cut(request, " ")
		if status, text := ask(method, path, "metrics-metrics-metrics"); status != http.StatusForbidden {
			t.Errorf("%s with the token for metrics: got %d %.200s, want 403", request, status, text)
		}
	}
	if status, _ := ask("GET", "/docs", ""); status != http.StatusOK { // for everybody, because it says nothing about the cluster
		t.Errorf("/docs without a token: got status %d, want 200", status)
	}
	write(own, "everything-everything")
	if err := d.server.ReadToken(); err == nil || !strings.Contains(err.Error(), "make another one") {
		t.Errorf("one token for both: got %v, want an error with the way out", err)
	}
	write(own, "another-token-for-metrics")
	if err := d.server.ReadToken(); err != nil {
		t.Fatal(err)
	}
	if status, _ := ask("GET", "/metrics", "metrics-metrics-metrics"); status != http.StatusUnauthorized {
		t.Errorf("the former token: got status %d, want 401", status)
	}
	cfg.TokenFile = ""
	if err := cfg.Validate(); err == nil {
		t.Error("a token for metrics without one for the rest was accepted, although everything is open then")
	}
}

// FuzzCleaned passes any bytes as the metrics of another daemon. The result is metrics without times, and is bounded.
func FuzzCleaned(f *testing.F) {
	for _, text := range []string{
		"", "muster_a 1\n", "# HELP muster_a x\n# TYPE muster_a histogram\nmuster_a_bucket{le=\"1\"} 1\nmuster_a_bucket{le=\"+Inf\"} 2\nmuster_a_sum 3\nmuster_a_count 2\n",
		"# TYPE go_gc summary\ngo_gc{quantile=\"0\"} 1\ngo_gc_sum 1\ngo_gc_count 1\n", "muster_a{x=\"\\\"\\n\\\\\"} NaN 17\n", "{\"muster_a\",x=\"1\"} 1\n",
		"#TYPE A0000 \n{}0",                  // the parser panics
		"#\nmuster_a{e=\"0\"}0\n{e=\"\"}0\n", // and gives one series the labels of another
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		out, err := cleaned(text)
		if err != nil {
			return
		}
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(out))
		if err != nil {
			t.Fatalf("%q becomes %q: got %v, want metrics", text, out, err)
		}
		for name, family := range families {
			for _, m := range family.GetMetric() {
				if m.TimestampMs != nil {
					t.Errorf("%s has a time", name)
				}
			}
		}
	})
}

// manyTasks is a daemon on which 100 tasks run.
type manyTasks struct{}

func (manyTasks) Collect(_ context.Context, sees func(string) bool, to chan<- prometheus.Metric) {
	for _, name := range manyNames {
		for i := range 100 {
			if sees("bob") {
				to <- prometheus.MustNewConstMetric(name, prometheus.GaugeValue, float64(i)*1.25, fmt.Sprintf("%010d-mdxchras0wg7e", i), "0", "bob")
			}
		}
	}
}

// manyNames are as many as a task has.
var manyNames = func() (all []*prometheus.Desc) {
	for i := range 10 {
		all = append(all, prometheus.NewDesc(fmt.Sprintf("muster_task_%d", i), "A figure of the task.", []string{"job", "task", "user"}, nil))
	}
	return all
}()

// BenchmarkMetrics measures a scrape of a daemon with 100 tasks: its own, as Prometheus asks for it, and through
// another.
func BenchmarkMetrics(b *testing.B) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s := &scrapes{registry: reg, measured: manyTasks{}, log: slog.New(slog.DiscardHandler)}
	req := httptest.NewRequestWithContext(context.WithValue(b.Context(), requesterKey{}, requester{scraper: true}), http.MethodGet, "/metrics", http.NoBody)
	req.Header.Set("Accept-Encoding", "gzip")
	b.Run("own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, req)
			if w.Code != http.StatusOK {
				b.Fatal(w.Code)
			}
		}
	})
	text, err := s.own(req.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Run("cleaned", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := cleaned(text); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Metrics gathered from several registries are in order, also if two registries have a family of the same name.
func TestGatheredMetricsAreInOrder(t *testing.T) {
	gauge := func(name, label string) *prometheus.Registry {
		reg := prometheus.NewRegistry()
		reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: "A figure.", ConstLabels: prometheus.Labels{"of": label}}))
		return reg
	}
	for _, c := range []struct {
		names [3]string
		want  string
	}{{[3]string{"c", "a", "b"}, "a:1 b:1 c:1 "}, {[3]string{"b", "a", "b"}, "a:1 b:2 "}} {
		all := together{}
		for i, name := range c.names {
			all = append(all, gauge(name, fmt.Sprint(i)))
		}
		families, err := all.Gather()
		got := ""
		for _, f := range families {
			got += fmt.Sprintf("%s:%d ", f.GetName(), len(f.GetMetric()))
		}
		if err != nil || got != c.want {
			t.Errorf("%v: got %s, %v, want %s", c.names, got, err, c.want)
		}
	}
	bad := collect(func(ch chan<- prometheus.Metric) {
		ch <- prometheus.NewInvalidMetric(prometheus.NewDesc("x", "A figure.", nil, nil), errSource)
	})
	reg := prometheus.NewRegistry()
	reg.MustRegister(bad)
	if families, err := (together{gauge("a", ""), reg}).Gather(); err == nil || len(families) != 1 {
		t.Errorf("got %v, %v, want an error and one family", families, err)
	}
}

var errSource = errors.New("it cannot be read")
