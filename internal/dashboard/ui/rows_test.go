package ui

// The contents of the rows of listings.

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// The row of a job says how it ended, how many of its tasks failed, and the GPUs that it holds, as `muster jobs` does.
func TestRowsOfJobsShowEndsAndGPUs(t *testing.T) {
	job := func(name, state, array string, more map[string]any) map[string]any {
		j := map[string]any{"id": "1-" + name, "name": name, "user": "amy", "state": state, "reason": "", "nodes": 1, "array": array, "submitted_at": "2026-01-02T03:04:05Z", "task_count": 1, "exit_code": nil, "resources": map[string]any{"cpus": 1}}
		maps.Copy(j, more)
		return j
	}
	tab := page(t, daemon{"/v1/jobs": says(map[string]any{"items": []any{
		job("broken", "FAILED", "", map[string]any{"exit_code": 9, "counts": map[string]int{"FAILED": 1}, "tasks": []any{map[string]any{"state": "FAILED", "node": "n1", "node_id": "id1"}}}),
		job("sweep", "RUNNING", "0-39%3", map[string]any{"task_count": 40, "counts": map[string]int{"RUNNING": 3, "FAILED": 2, "SUCCEEDED": 5, "PENDING": 30}, "resources": map[string]any{"gpus": 2}}),
		job("gang", "PENDING", "", map[string]any{"nodes": 4, "reason": "GangWaiting", "task_count": 4, "counts": map[string]int{"PENDING": 4}, "resources": map[string]any{"gpus": 2}}),
	}})}, "/jobs")
	until(t, tab, "document.querySelectorAll('[data-row]').length === 3")
	for i, want := range []struct{ gpus, where string }{{"", "exit code 9 · on n1"}, {"6", "2 failed · 3 running"}, {"8", "GangWaiting"}} {
		cell := func(class string) string {
			return eval[string](t, tab, fmt.Sprintf("document.querySelectorAll('[data-row]')[%d].querySelector('.%s').innerText", i, class))
		}
		gpus, where := cell("gp"), cell("where")
		if gpus != want.gpus || where != want.where {
			t.Errorf("row %d: got %q GPUs, %q; want %q, %q", i, gpus, where, want.gpus, want.where)
		}
	}
}

// For a node that does not answer it is unknown what runs there.
func TestTasksOfASilentNodeAreUnknown(t *testing.T) {
	n := map[string]any{
		"id": "id0", "name": "n0", "state": "suspect", "detail": "it does not answer", "seen_at": "2026-01-02T03:04:05Z", "labels": map[string]string{}, "signed_labels": map[string]string{}, "worker": true,
		"gpus": []any{}, "cpus": 8, "memory": 1 << 30, "running": 0, "free": map[string]any{"cpus": 0, "memory": 0}, "drivers": []string{"exec", "input", "signed"}, "addrs": []string{},
	}
	tab := page(t, daemon{"/v1/nodes": says(map[string]any{"items": []any{n}}), "/v1/jobs": says(map[string]any{"items": []any{}})}, "/nodes/n0")
	until(t, tab, "document.body.innerText.includes('Not known.')")
	text := eval[string](t, tab, "document.querySelector('main').innerText")
	if strings.Contains(text, "Nothing runs") || !strings.Contains(text, "it was last heard from") || strings.Contains(text, "input") {
		t.Errorf("the page is %q, want that this is not known", text)
	}
}

// On a phone no word moves the number beside it off the screen.
func TestNumbersFitAPhone(t *testing.T) {
	var waiting []any
	for i, reason := range []string{"Held", "Held", "DependencyNeverSatisfied"} {
		waiting = append(waiting, map[string]any{"id": fmt.Sprintf("1-%d", i), "name": "x", "reason": reason, "state": "PENDING", "user": "amy", "submitted_at": "2026-01-02T03:04:05Z"})
	}
	none := map[string]any{"total": 0}
	tab := page(t, daemon{
		"/v1/jobs":  says(map[string]any{"items": waiting}),
		"/v1/stats": says(map[string]any{"jobs": map[string]int{"PENDING": 3}, "nodes": map[string]int{"ready": 1}, "gpus": none, "models": map[string]any{}, "cpus": none, "memory": none}),
	}, "/")
	if err := chromedp.Do(tab, chromedp.EmulateViewport(390, 844)); err != nil {
		t.Fatal(err)
	}
	until(t, tab, "document.body.innerText.includes('Why jobs wait')")
	if right := eval[float64](t, tab, "Math.max(...[...document.querySelectorAll('.counts b')].map((b) => b.getBoundingClientRect().right))"); right > 390 {
		t.Errorf("a number ends at pixel %.0f, want at most 390", right)
	}
}

// Without a GPU in the cluster nothing suggests that there are some, or that this is unknown.
func TestClusterWithoutGPUsShowsNone(t *testing.T) {
	some := map[string]any{"total": 8, "free": 7}
	tab := page(t, daemon{
		"/v1/nodes": says(nodes(2)),
		"/v1/stats": says(map[string]any{"jobs": map[string]int{}, "nodes": map[string]int{"ready": 2}, "gpus": map[string]any{"total": 0, "held": 0}, "models": map[string]any{}, "cpus": some, "memory": some}),
	}, "/")
	until(t, tab, "Boolean(document.querySelector('table.capacity'))")
	if row := eval[string](t, tab, "document.querySelector('table.capacity tbody tr').innerText"); strings.Join(strings.Fields(row), " ") != "GPUs 0 0 – –" {
		t.Errorf("the row of GPUs is %q, want zeros", row)
	}
	eval[bool](t, tab, "document.querySelector('nav a[href=\"/gpus\"]').click() || true")
	until(t, tab, "document.body.innerText.includes('No node of this cluster has a GPU.')")
	if n := eval[int](t, tab, "document.querySelectorAll('.legend, .filter, .detail').length"); n > 0 {
		t.Errorf("got %d parts about GPUs, want 0", n)
	}
}

// The use of a node or a job is shown, and unknown values are not 0.
func TestUnknownUsageIsNotZero(t *testing.T) {
	list, _ := nodes(1).(map[string]any)["items"].([]any)
	n, _ := list[0].(map[string]any)
	n["usage"] = map[string]any{"cpus": nil, "memory": 1 << 30}
	j := map[string]any{
		"id": "1-1", "name": "x", "user": "amy", "state": "SUCCEEDED", "submitted_at": "2026-01-02T03:04:05Z", "resources": map[string]any{"cpus": 1}, "task_count": 1, "priority": 50,
		"started_at": "2026-01-02T03:04:05Z", "ended_at": "2026-01-02T03:06:05Z",
	}
	used := map[string]any{"cpu_seconds": 60, "cpu_seconds_known": 120, "memory_peak": nil, "gpu_seconds": nil, "gpu_seconds_known": 0}
	tab := page(t, daemon{"/v1/nodes": says(map[string]any{"items": list}), "/v1/jobs/1-1": says(j), "/v1/jobs/1-1/usage": says(used)}, "/nodes/node-0000")
	const fact = "[...document.querySelectorAll('.facts div')].find((d) => d.innerText.startsWith('%s'))?.innerText.replace(/\\s+/g, ' ') || ''"
	until(t, tab, "Boolean(document.querySelector('.facts'))")
	if text := eval[string](t, tab, fmt.Sprintf(fact, "In use")); text != "In use 1.0 GiB" {
		t.Errorf("the node: got %q, want only the memory", text)
	}
	eval[bool](t, tab, "history.pushState(null, '', '/jobs/1-1'), dispatchEvent(new PopStateEvent('popstate')), true")
	until(t, tab, "("+fmt.Sprintf(fact, "Used")+").includes('CPU')")
	if text := eval[string](t, tab, fmt.Sprintf(fact, "Used")); text != "Used 1m 00s of CPU time (50 % of what it held)" {
		t.Errorf("the job: got %q, want only the CPU time", text)
	}
}
