//go:build e2e

package e2e

// Metrics as Prometheus sees them: three daemons through one address, with the shipped files.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/testkit/needtest"
	"github.com/musterhq/muster/internal/testkit/rulestest"
)

// tool returns a program of Debian's package prometheus.
func tool(t *testing.T, name string) string {
	t.Helper()
	return needtest.Runs(t, name, "--version")
}

// scraped is a cluster that can be scraped through one daemon.
type scraped struct {
	amy, ben, cat *daemon
	addr, token   string // of amy
	tokenFile     string
	jobFiles      string // directory of cat
}

func startScraped(t *testing.T) scraped {
	t.Helper()
	dir := t.TempDir()
	s := scraped{addr: fmt.Sprintf("127.0.0.1:%d", freePort(t)), token: "only-for-metrics-0123", tokenFile: filepath.Join(dir, "own"), jobFiles: filepath.Join(dir, "jobs")}
	all := filepath.Join(dir, "all")
	for file, token := range map[string]string{all: "for-everything-01234567", s.tokenFile: s.token} {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.amy = newDaemon(t, "amy", "--gpus", "none", "--cpus", "4", "--http", s.addr, "--http-token", all, "--http-metrics-token", s.tokenFile).start()
	inv := s.amy.invite("--uses", "2")
	s.ben = newDaemon(t, "ben", "--gpus", "none", "--cpus", "4").start(inv.flags()...)
	s.cat = newDaemon(t, "cat", "--gpus", "sim:4xH100-80GB", "--cpus", "16", "--dcgm-job-mapping", s.jobFiles).start(inv.flags()...)
	for _, d := range []*daemon{s.amy, s.ben, s.cat} {
		d.untilNodes(3)
	}
	return s
}

// get asks amy with the token for metrics.
func (s *scraped) get(t *testing.T, path string) (status int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// of returns the metrics of a node, through amy.
func (s *scraped) of(t *testing.T, node string) string {
	t.Helper()
	status, text := s.get(t, "/v1/nodes/"+node+"/metrics")
	if status != http.StatusOK {
		t.Fatalf("metrics of %s: got %d %s, want 200", node, status, text)
	}
	return text
}

// A job has series while it runs, and none after its end: after a thousand ended tasks there are as many series as
// before.
func TestJobHasSeriesWhileItRuns(t *testing.T) {
	s := startScraped(t)
	before := strings.Count(s.of(t, "cat"), "\n")
	id := s.amy.ok("submit", "--gpus", "2", "--name", "holder", "--", "sleep", "300")
	s.amy.untilState(id, "RUNNING")
	text := s.of(t, "cat")
	for _, want := range []string{
		`muster_gpu_task_info{job="` + id + `",task="0",user="` + userName(t) + `",uuid="`, `muster_task_gpus{job="` + id + `"`, "muster_node_gpus_allocated 2", "muster_node_gpus 4", "muster_node_ready 1",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("want %s, got\n%s", want, text)
		}
	}
	if text := s.of(t, "amy"); !strings.Contains(text, `muster_jobs{state="RUNNING"} 1`) || strings.Contains(text, id) {
		t.Errorf("at the owner: want one running job without its id, got\n%s", text)
	}
	held := func() string {
		files, _ := filepath.Glob(filepath.Join(s.jobFiles, "[0-9]*"))
		for _, f := range files {
			if text, err := os.ReadFile(f); err != nil || string(text) != id+"\n" {
				return fmt.Sprintf("%s has %q, %v", f, text, err)
			}
		}
		if len(files) != 2 {
			return fmt.Sprintf("files %q, want two", files)
		}
		return ""
	}
	untilRight(t, patience, held)
	s.cat.kill() // the tasks run on, and another program has left a false file
	if err := os.WriteFile(filepath.Join(s.jobFiles, "7"), []byte("gone\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.cat.start()
	untilRight(t, patience, held)
	s.amy.ok("cancel", id)
	s.amy.untilState(id, "CANCELLED")
	untilRight(t, patience, func() string {
		if files, _ := filepath.Glob(filepath.Join(s.jobFiles, "[0-9]*")); len(files) > 0 {
			return fmt.Sprintf("files %q are left", files)
		}
		return ""
	})
	many := s.amy.ok("submit", "--array", "1-1000", "--", "true")
	until(s.amy, many, "SUCCEEDED", func() api.Job {
		var j api.Job
		_ = json.Unmarshal([]byte(s.amy.ok("show", many, "--json")), &j)
		return j
	}, func(j api.Job) bool { return j.State == "SUCCEEDED" })
	untilRight(t, patience, func() string {
		for _, node := range []string{"amy", "ben", "cat"} {
			text := s.of(t, node)
			if strings.Contains(text, id) || strings.Contains(text, many) {
				return node + " still names a job that has ended:\n" + text
			}
			if n := strings.Count(text, "\n"); node == "cat" && n > before+100 {
				return fmt.Sprintf("%d lines, %d before", n, before)
			}
		}
		return ""
	})
	if status, text := s.get(t, "/v1/jobs"); status != http.StatusForbidden {
		t.Errorf("the token for metrics reads jobs: got %d %s, want 403", status, text)
	}
}

// userName is the user of this process.
func userName(t *testing.T) string {
	t.Helper()
	name, err := api.NameOf(os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// Prometheus' own tool accepts our names and the rules.
func TestPromtoolAcceptsMetricsAndRules(t *testing.T) {
	t.Parallel()
	promtool := tool(t, "promtool")
	s := startScraped(t)
	check := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	check.Stdin = strings.NewReader(s.of(t, "cat"))
	out, _ := check.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "libp2p_") { // these names are not ours
			t.Errorf("check metrics: got %s, want a text that begins with %q", line, "libp2p_")
		}
	}
	for _, args := range [][]string{append([]string{"check", "rules"}, rulestest.Files()...), {"test", "rules", "tests.yml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = "../packaging/prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %q: got %v, want no error\n%s", args, err, out)
		}
	}
}

// prometheus runs Prometheus with the shipped configuration, and returns a function that queries it.
func prometheus(t *testing.T, s scraped) func(expr string) (n int, err string) {
	t.Helper()
	program, dir := tool(t, "prometheus"), t.TempDir()
	text, err := os.ReadFile("../packaging/prometheus/prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	config := strings.NewReplacer("127.0.0.1:4780", s.addr, "/etc/prometheus/muster-token", s.tokenFile, "15s", "1s").Replace(string(text))
	for _, file := range rulestest.Files() {
		rules, err := os.ReadFile("../packaging/prometheus/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), rules, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config = strings.Replace(config, "global:\n", "global:\n  evaluation_interval: 1s\n", 1)
	if err := os.WriteFile(filepath.Join(dir, "c.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "--config.file", filepath.Join(dir, "c.yml"), "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", addr)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("prometheus: %s", log.String())
		}
	})
	return func(expr string) (int, string) {
		resp, err := http.PostForm("http://"+addr+"/api/v1/query", url.Values{"query": {expr}})
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		var answer struct {
			Error string
			Data  struct{ Result []json.RawMessage }
		}
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
			return 0, err.Error()
		}
		return len(answer.Data.Result), answer.Error
	}
}

// Debian's Prometheus scrapes three daemons through one. Each expression of the dashboard returns data, and each of the
// rules is valid.
func TestPrometheusEvaluatesAllExpressions(t *testing.T) {
	t.Parallel()
	tool(t, "prometheus")
	s := startScraped(t)
	ask := prometheus(t, s)
	id := s.amy.ok("submit", "--gpus", "1", "--", "sleep", "300")
	s.amy.untilState(id, "RUNNING")
	for range 3 {
		s.cat.ok("run", "--", "true")
		s.ben.ok("run", "--", "true")
	}
	untilRight(t, 2*patience, func() string {
		n, err := ask(`up{job="muster"} == 1 and on (instance) label_replace(muster_node_ready, "x", "", "", "")`)
		if n != 3 {
			return fmt.Sprintf("%d nodes of 3 are up: %s", n, err)
		}
		return ""
	})
	text, err := os.ReadFile("../packaging/grafana/muster.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	set := strings.NewReplacer("$node", ".*", "$gpu", ".*", "$__rate_interval", "5s")
	asked := 0
	for _, p := range board.Panels {
		for _, x := range p.Targets {
			asked++
			untilRight(t, patience, func() string {
				if strings.Contains(x.Expr, "rate(muster_queue") || strings.Contains(x.Expr, "rate(muster_submit") {
					s.amy.ok("run", "--", "true")
				}
				if n, err := ask(set.Replace(x.Expr)); n == 0 {
					return fmt.Sprintf("panel %q: no data for %s: %s", p.Title, set.Replace(x.Expr), err)
				}
				return ""
			})
		}
	}
	if asked < 25 {
		t.Errorf("got %d expressions, want at least 25", asked)
	}
	for _, r := range rulestest.Rules(t, "../packaging/prometheus") {
		// the series that an alert uses exist, apart from its condition
		looks := regexp.MustCompile(`(==|<|>) *[0-9.]+( \* 86400)?$`).ReplaceAllString(strings.TrimSpace(r.Expr), "")
		switch r.Alert {
		case "MusterNotScraped", "MusterQueueStuck", "MusterGPUIdle", "MusterInvitersEnding": // the founder has let all in
			looks = r.Expr
		}
		untilRight(t, patience, func() string { // what other rules record exists after their first evaluation
			n, why := ask(looks)
			if quiet := looks == r.Expr && r.Alert != ""; why != "" || n == 0 && !quiet {
				return fmt.Sprintf("%s: %d results for %s: %s", r.Alert+r.Record, n, looks, why)
			}
			return ""
		})
	}
}
