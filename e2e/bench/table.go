package main

// The table of benchmarks. Its order is that of docs/benchmarks.md.

import (
	"context"
	"fmt"
)

// benchmark measures some figures together. How gets the path of the program, and adds the readings of one run.
type benchmark struct {
	name    string
	how     func(ctx context.Context, program string, r *report) error
	figures []figure
}

var table = []benchmark{
	{"start", onCluster(devNodes, inFlight, (*cluster).start), []figure{
		{
			Name: "start", Unit: "ms", Aim: "p50 ≤ 15 ms, p99 ≤ 60 ms",
			What: "submit → process started, idle, 3 daemons, 300 jobs one at a time",
		},
	}},
	{"gang", onCluster(devNodes, inFlight, (*cluster).gang), []figure{
		{
			Name: "gang", Unit: "ms", Aim: "p50 ≤ 15 ms, p99 ≤ 60 ms",
			What: "submit → all processes of a gang of 3 started, idle, 3 daemons on loopback, 200 gangs one at a time",
		},
		{Name: "gang-apart", Unit: "ms", What: "between the starts of the first and the last of these processes"},
	}},
	{"rate", onCluster(devNodes, inFlight, rate("rate")), []figure{
		{
			Name: "rate", Unit: "a second", Aim: "≥ 300 a second",
			What: "1,500 jobs of `/bin/true`, 32 in flight, durable, 3 daemons with a CPU for each job in flight",
		},
		{Name: "rate-share", Unit: "% of fork-exec-wait", Aim: "≥ 28 %", What: "the same beside the bare loop of the same run"},
		{Name: "rate-cpu", Unit: "ms", Aim: "≤ 5 ms", What: "CPU of such a job, over all processes"},
		{Name: "rate-cpu-times", Unit: "times fork-exec-wait", Aim: "≤ 4 times", What: "the same beside the bare loop of the same run"},
	}},
	{"rate-queued", onCluster(devNodes, 0, rate("rate-queued")), []figure{
		{Name: "rate-queued", Unit: "a second", What: "the same where each daemon has the CPUs of the machine, so that most jobs queue on a small one"},
		{Name: "rate-queued-share", Unit: "% of fork-exec-wait", What: "the same beside the bare loop of the same run"},
		{Name: "rate-queued-cpu", Unit: "ms", What: "CPU of a job that may queue, over all processes"},
		{Name: "rate-queued-cpu-times", Unit: "times fork-exec-wait", What: "the same beside the bare loop of the same run"},
	}},
	{"array", inTurn(
		onCluster(devNodes, inFlight, array("with control groups")), onCluster(devNodes, inFlight, array("without"), "--cgroups-off"),
	), []figure{
		{Name: "array", Unit: "a second", What: "an array of 10,000 tasks of `/bin/true`, 3 daemons with room for 96 at a time"},
		{Name: "array-share", Unit: "% of fork-exec-wait", Aim: "≥ 33 % with control groups, ≥ 50 % without", What: "the same beside the bare loop of the same run"},
		{Name: "array-cpu", Unit: "ms", What: "CPU of such a task, over all processes"},
		{Name: "array-cpu-times", Unit: "times fork-exec-wait", Aim: "≤ 3.5 times", What: "the same beside the bare loop of the same run"},
	}},
	{"array-accept", onCluster(devNodes, inFlight, (*cluster).largeArray), []figure{
		{Name: "array-accept", Unit: "ms", Aim: "≤ 50 ms", What: "an array of 1,000,000 tasks accepted, durable, 3 daemons"},
	}},
	{"queue", onCluster(1, 0, (*cluster).queue, "--gpus", "sim:1xH100-80GB"), []figure{
		{Name: "queue-page", Unit: "ms", Aim: "≤ 30 ms", What: "the first page of a listing while 20,000 jobs wait for a GPU"},
		{Name: "queue-list", Unit: "ms", Aim: "≤ 500 ms", What: "`muster jobs` of all of them"},
	}},
	{"metrics", onCluster(1, 128, (*cluster).scrape, "--gpus", fmt.Sprintf("sim:%dxH100-80GB", scrapedGPUs)), []figure{
		{Name: "metrics", Unit: "ms", Aim: "p50 ≤ 15 ms", What: "`/metrics` of a daemon with 8 GPUs on which 100 tasks run"},
		{Name: "metrics-series", Unit: "series", Aim: "≤ 3,000", What: "series of the answer"},
	}},
	{"view", goBench("./api", "Fed$", "1x",
		reading{figure: "view-nodes", label: "p50", bench: "Fed", metric: "ms/nodes-p50"},
		reading{figure: "view-nodes", label: "p99", bench: "Fed", metric: "ms/nodes-p99"},
		reading{figure: "view-event", label: "p50", bench: "Fed", metric: "ms/event-p50"},
		reading{figure: "view-event", label: "p99", bench: "Fed", metric: "ms/event-p99"},
		reading{figure: "view-memory", label: "the whole server, nobody looks", bench: "Fed", metric: "MB/server"},
		reading{figure: "view-memory", label: "the picture for the first viewer", bench: "Fed", metric: "MB/picture"},
		reading{figure: "view-memory", label: "49 more viewers", bench: "Fed", metric: "MB/50-viewers"},
		reading{figure: "view-memory", label: "50 viewers and all events that are kept", bench: "Fed", metric: "MB/all-viewers"},
		reading{figure: "view-memory", label: "what is left 40 s after the last has gone", bench: "Fed", metric: "MB/after"},
		reading{figure: "view-cpu", bench: "Fed", metric: "%/50-viewers"},
	), []figure{
		{
			Name: "view-nodes", Unit: "ms", Aim: "p50 ≤ 15 ms",
			What: "`/v1/nodes` of a daemon that is fed as by 500 nodes with 4,000 GPUs and 10,000 jobs, 50 changes a second",
		},
		{Name: "view-event", Unit: "ms", Aim: "p50 ≤ 150 ms, p99 ≤ 500 ms", What: "a change in a feed → the event at a client of the same daemon"},
		{Name: "view-memory", Unit: "MB", Aim: "50 viewers ≤ 30 MB", What: "memory of the same daemon before, while and after somebody looks, with the 500 feeds of the benchmark and one client"},
		{Name: "view-cpu", Unit: "% of a core", Aim: "≤ 10 %", What: "CPU of the same daemon for 49 more viewers"},
	}},
	{"page", onFed(fedChanges, pages), []figure{
		{Name: "page-first", Unit: "ms", Aim: "≤ 1,500 ms", What: "address opened → overview with data, in headless Chromium through `muster ui`, before a daemon that is fed like that of `view-nodes`"},
		{Name: "page-code", Unit: "KB", Aim: "≤ 250 KB", What: "code, styles and page that it loads, compressed"},
		{Name: "page-long", Unit: "ms", Aim: "≤ 100 ms", What: "longest task of each of these pages in 2 min; 0: none of 50 ms or more"},
		{Name: "page-heap", Unit: "MB", Aim: "≤ 80 MB", What: "JavaScript heap of the tab after a walk through these pages"},
		{Name: "page-memory", Unit: "MB", What: "private memory of the tab's process after that"},
	}},
	{"page-change", inTurn(onFed(fedChanges, pageChanges), onCluster(devNodes, inFlight, (*cluster).pageChanges)), []figure{
		{Name: "page-change", Unit: "ms", Aim: "p50 ≤ 150 ms, p99 ≤ 500 ms", What: "a job starts or ends at one daemon → it is drawn in the overview of another"},
	}},
	{"page-log", pageLog, []figure{
		{Name: "page-log", Unit: "MB/s", Aim: "≥ 20 MB/s", What: "1 GiB of output followed in the page of its job while it is written"},
		{Name: "page-log-memory", Unit: "MB", Aim: "≤ 150 MB", What: "private memory of the tab's process after that"},
		{Name: "page-log-jump", Unit: "ms", Aim: "≤ 300 ms", What: "a click into the whole of that output → the lines of that place are drawn"},
	}},
	{"top", inTurn(onFed(fedChanges, top("50 changes a second")), onFed(0, top("no changes"))), []figure{
		{Name: "top-memory", Unit: "MB", Aim: "≤ 30 MB", What: "memory of `muster top` at a daemon that is fed like that of `view-nodes`: its own, and resident, with pages of the program's file, which the daemon of a host has mapped too"},
		{Name: "top-cpu", Unit: "% of a core", Aim: "≤ 2 %", What: "CPU of it"},
		{Name: "top-bytes", Unit: "KB/s", Aim: "≤ 4 KB/s without changes", What: "what it is sent"},
	}},
	{"core-memory", goBench("./scheduler", "Memory$", "3x",
		reading{figure: "core-memory-array", label: "a million that wait", bench: "Memory", metric: "MB/million-waiting"},
		reading{figure: "core-memory-array", label: "10,000 that run", bench: "Memory", metric: "MB/10k-running"},
		reading{figure: "core-memory-job", bench: "Memory", metric: "B/waiting-job"},
	), []figure{
		{Name: "core-memory-array", Unit: "MB", Aim: "≤ 20 MB for a million that wait, ≤ 15 MB for 10,000 that run", What: "memory of the scheduler's core for tasks of an array"},
		{Name: "core-memory-job", Unit: "bytes", Aim: "≤ 5,000 bytes", What: "the same for each of 20,000 single jobs that wait for a GPU"},
	}},
	{"core-place", goBench("./scheduler", "Place10k", "2000x",
		reading{figure: "core-place", label: "balanced", bench: "Place10k/balanced", metric: "cpu-µs/op"},
		reading{figure: "core-place", label: "frag", bench: "Place10k/frag", metric: "cpu-µs/op"},
		reading{figure: "core-place", label: "frag, a share", bench: "Place10k/frag-share", metric: "cpu-µs/op"},
		reading{figure: "core-place", label: "pack", bench: "Place10k/pack", metric: "cpu-µs/op"},
		reading{figure: "core-place", label: "simple", bench: "Place10k/simple", metric: "cpu-µs/op"},
		reading{figure: "core-place", label: "spread", bench: "Place10k/spread", metric: "cpu-µs/op"},
		reading{figure: "core-place", label: "topology", bench: "Place10k/topology", metric: "cpu-µs/op"},
		reading{figure: "core-place-full", bench: "Place10kFull", metric: "ns/op"},
	), []figure{
		{
			Name: "core-place", Unit: "µs", Aim: "≤ 50 µs",
			What: "the scheduler's core alone, without disk and network: CPU of one placement of 64 candidates at 10,000 hosts of 8 GPUs, by policy",
		},
		{Name: "core-place-full", Unit: "µs", What: "the same where no host has room"},
	}},
	{"core-plan", goBench("./scheduler", "Plan10k", "10x",
		reading{figure: "core-plan", label: "balanced", bench: "Plan10k/balanced", metric: "cpu-ms/op"},
		reading{figure: "core-plan", label: "frag", bench: "Plan10k/frag", metric: "cpu-ms/op"},
		reading{figure: "core-plan", label: "pack", bench: "Plan10k/pack", metric: "cpu-ms/op"},
		reading{figure: "core-plan", label: "simple", bench: "Plan10k/simple", metric: "cpu-ms/op"},
		reading{figure: "core-plan", label: "spread", bench: "Plan10k/spread", metric: "cpu-ms/op"},
		reading{figure: "core-plan", label: "topology", bench: "Plan10k/topology", metric: "cpu-ms/op"},
		reading{figure: "core-plan", label: "no host has room", bench: "Plan10k/full", metric: "cpu-ms/op"},
	), []figure{
		{
			Name: "core-plan", Unit: "ms", Aim: "≤ 50 ms",
			What: "CPU of one plan of it over 10,000 hosts and 1,000 different pending requests",
		},
	}},
	{"core-decision", goBench("./internal/sim/placing", "Decision", "2000x",
		reading{figure: "core-decision", label: "64 candidates", bench: "Decision/64", metric: "cpu-µs/op"},
		reading{figure: "core-decision", label: "1,213 candidates", bench: "Decision/1213", metric: "cpu-µs/op"},
	), []figure{
		{
			Name: "core-decision", Unit: "µs", Aim: "≤ 50 µs with 64 candidates, ≤ 1,000 µs with 1,213",
			What: "CPU of one decision of the policy frag for requests of many kinds, on 1,213 machines of which half is allocated",
		},
	}},
	{"sim-place", goBench("./internal/sim/placing", "Run$", "3x",
		reading{figure: "sim-place", label: "frag", bench: "Run/frag", metric: "cpu-s/op"},
		reading{figure: "sim-place", label: "FGD", bench: "Run/FGD", metric: "cpu-s/op"},
	), []figure{
		{
			Name: "sim-place", Unit: "s", Aim: "≤ 10 s",
			What: "CPU of a placement experiment: 11,000 arrivals on 1,213 machines, all of them candidates, by policy",
		},
	}},
	{"sim-world", goBenchWith(
		[]string{"-sim.hosts", "10000", "-sim.tasks", "1000000", "-sim.schedulers", "16", "-sim.array", "100"}, "./internal/sim", "World$", "1x",
		reading{figure: "sim-world", bench: "World", metric: "cpu-s"},
		reading{figure: "sim-world-events", bench: "World", metric: "events/s"},
		reading{figure: "sim-world-memory", bench: "World", metric: "MiB"},
		reading{figure: "sim-world-host", bench: "World", metric: "B/host"},
	), []figure{
		{Name: "sim-world", Unit: "s", Aim: "≤ 600 s", What: "CPU of a simulation of 10,000 hosts of 8 GPUs and 1,000,000 tasks, 80 % of the GPUs busy, in arrays of 100"},
		{Name: "sim-world-events", Unit: "a second", What: "events of it, by CPU time"},
		{Name: "sim-world-memory", Unit: "MiB", Aim: "≤ 8,192 MiB", What: "memory of it"},
		{Name: "sim-world-host", Unit: "bytes", What: "the same for each host"},
	}},
	{"core-freed", goBench("./scheduler", "Freed10k", "2000x",
		reading{figure: "core-freed", bench: "Freed10k", metric: "ns/op"},
	), []figure{
		{
			Name: "core-freed", Unit: "µs", Aim: "≤ 200 µs",
			What: "one step of it at 10,000 hosts and 1,000 blocked requests, each different, when one host gets room",
		},
	}},
	{"core-job", goBench("./scheduler", "Full90|Job$", "2000x",
		reading{figure: "core-job-full", bench: "Full90", metric: "ns/op"},
		reading{figure: "core-job", bench: "Job", metric: "ns/op"},
	), []figure{
		{
			Name: "core-job-full", Unit: "µs", Aim: "≤ 500 µs",
			What: "one job from submission to its end in a cluster of 90 hosts that 4,000 others keep full",
		},
		{Name: "core-job", Unit: "µs", What: "one job from submission to its end at one host, with no others"},
	}},
	{"state", goBench("./scheduler/state", "Apply|Rows|Memory", "1s",
		reading{figure: "state-record", bench: "Apply", metric: "ns/record"},
		reading{figure: "state-rows", bench: "Rows", metric: "B/save"},
		reading{figure: "state-memory", label: "has run", bench: "Memory", metric: "B/ended-task"},
		reading{figure: "state-memory", label: "waits", bench: "Memory", metric: "B/waiting-task"},
	), []figure{
		{Name: "state-record", Unit: "ns", Aim: "≤ 5,000 ns", What: "the state of jobs: one record of a job of 100,000 tasks"},
		{Name: "state-rows", Unit: "bytes", Aim: "≤ 10,000 bytes", What: "what is saved after the records of one of these tasks"},
		{Name: "state-memory", Unit: "bytes", Aim: "≤ 100 bytes", What: "memory of one of these tasks"},
	}},
	{"session", goBench("./p2p/session", "OfferCommit|Raw", "2s",
		reading{figure: "session", label: "256 in flight", bench: "OfferCommit/in_flight=256", metric: "pairs/s"},
		reading{figure: "session", label: "16 in flight", bench: "OfferCommit/in_flight=16", metric: "pairs/s"},
		reading{figure: "session", label: "1 in flight", bench: "OfferCommit/in_flight=1", metric: "pairs/s"},
		reading{figure: "session", raw: true, label: "256 in flight", bench: "RawTCP/in_flight=256", metric: "pairs/s"},
		reading{figure: "session", raw: true, label: "16 in flight", bench: "RawTCP/in_flight=16", metric: "pairs/s"},
		reading{figure: "session", raw: true, label: "1 in flight", bench: "RawTCP/in_flight=1", metric: "pairs/s"},
		reading{figure: "session-cpu", label: "256 in flight", bench: "OfferCommit/in_flight=256", metric: "cpu-µs/pair"},
		reading{figure: "session-cpu", label: "16 in flight", bench: "OfferCommit/in_flight=16", metric: "cpu-µs/pair"},
		reading{figure: "session-cpu", label: "1 in flight", bench: "OfferCommit/in_flight=1", metric: "cpu-µs/pair"},
		reading{figure: "session-cpu", raw: true, label: "256 in flight", bench: "RawTCP/in_flight=256", metric: "cpu-µs/pair"},
		reading{figure: "session-cpu", raw: true, label: "16 in flight", bench: "RawTCP/in_flight=16", metric: "cpu-µs/pair"},
		reading{figure: "session-cpu", raw: true, label: "1 in flight", bench: "RawTCP/in_flight=1", metric: "cpu-µs/pair"},
	), []figure{
		{
			Name: "session", Unit: "pairs a second", Aim: "≥ 20,000 with 256 in flight",
			What: "offer and commit between two daemons' protocol layers; the raw limit is the same bytes over TCP in batches",
		},
		{Name: "session-cpu", Unit: "µs a pair", Aim: "≤ 60 µs with 256 in flight", What: "CPU of such a pair, both sides"},
	}},
	{"journal", goBench("./scheduler/journal", "Raw|Commit", "2s",
		reading{figure: "journal", label: "1 in flight", bench: "Commit/inflight=1", metric: "records/s"},
		reading{figure: "journal", label: "32 in flight", bench: "Commit/inflight=32", metric: "records/s"},
		reading{figure: "journal", label: "128 in flight", bench: "Commit/inflight=128", metric: "records/s"},
		reading{figure: "journal", label: "1,024 in flight", bench: "Commit/inflight=1024", metric: "records/s"},
		reading{figure: "journal", raw: true, label: "append and fdatasync", bench: "Raw", metric: "syncs/s"},
	), []figure{
		{Name: "journal", Unit: "a second", What: "records of the journal, synced"},
	}},
	{"tasks", goBench("./worker/supervisor", "Bare|Tasks", "2s",
		reading{figure: "tasks", label: "without cgroups", bench: "Tasks/nogroups", metric: "tasks/s"},
		reading{figure: "tasks", label: "with cgroups v1", bench: "Tasks/nounified", metric: "tasks/s"},
		reading{figure: "tasks", label: "with v1 and a v2 tree", bench: "Tasks/groups", metric: "tasks/s"},
		reading{figure: "tasks", raw: true, label: "fork-exec-wait", bench: "Bare", metric: "tasks/s"},
		reading{figure: "tasks-cpu", label: "without cgroups", bench: "Tasks/nogroups", metric: "cpu-µs/task"},
		reading{figure: "tasks-cpu", label: "with cgroups v1", bench: "Tasks/nounified", metric: "cpu-µs/task"},
		reading{figure: "tasks-cpu", label: "with v1 and a v2 tree", bench: "Tasks/groups", metric: "cpu-µs/task"},
		reading{figure: "tasks-cpu", raw: true, label: "fork-exec-wait", bench: "Bare", metric: "cpu-µs/task"},
	), []figure{
		{
			Name: "tasks", Unit: "a second", Aim: "≥ 50 % of the raw limit without cgroups",
			What: "tasks started and reaped by one runner, `/bin/true`, 32 in flight",
		},
		{Name: "tasks-cpu", Unit: "µs a task", What: "CPU of such a task"},
	}},
	{"idle", onCluster(devNodes, inFlight, (*cluster).idle), []figure{
		{Name: "idle-memory", Unit: "MB", Aim: "daemon ≤ 90 MB", What: "RSS of a daemon of three, idle, and of its runner"},
		{Name: "idle-cpu", Unit: "% of a core", Aim: "daemon ≤ 1 %", What: "CPU of the same processes"},
	}},
	{"runner", onCluster(1, inFlight, (*cluster).runner), []figure{
		{Name: "runner-memory", Unit: "MB", Aim: "≤ 15 MB", What: "RSS of a runner with 100 tasks"},
	}},
	{"flat", onCluster(1, inFlight, (*cluster).flat), []figure{
		{Name: "flat", Unit: "MB", What: "RSS of one daemon at rest after 1,000 and after 10,000 tasks of `/bin/true`"},
		{Name: "flat-growth", Unit: "%", Aim: "≤ 10 %", What: "by how much the second is more than the first"},
	}},
	{"docker", docker, []figure{
		{
			Name: "docker", Unit: "ms", Aim: "p50 ≤ 1.2 times the raw limit",
			What: "container started, submit to process, idle, image at hand, 30 runs in turn; the raw limit is `docker run -d`",
		},
	}},
	{"version", version, []figure{
		{Name: "version", Unit: "ms", Aim: "≤ 60 ms", What: "`muster version`"},
	}},
	{"logs", onCluster(devNodes, inFlight, (*cluster).logs), []figure{
		{Name: "logs", Unit: "MB/s", Aim: "≥ 200 MB/s through two daemons", What: "output of 200 MiB followed"},
	}},
	{"output", onCluster(devNodes, inFlight, (*cluster).output), []figure{
		{Name: "output", Unit: "s", What: "a job that writes 1 GiB of output"},
		{Name: "output-memory", Unit: "MiB", Aim: "flat", What: "RSS of the three daemons and of the runners around that job"},
	}},
	{"upload-50", onCluster(devNodes, inFlight, uploading("upload-50", 50)), uploadFigures("upload-50",
		"upload of 500 MB in 50 files, client to daemon to worker to the start of the task; then to a second worker; then to it again")},
	{"upload-10k", onCluster(devNodes, inFlight, uploading("upload-10k", 10_000)), uploadFigures("upload-10k", "the same in 10,000 files")},
}

func uploadFigures(name, what string) []figure {
	return []figure{
		{Name: name, Unit: "MB/s", Aim: "new ≥ 150 MB/s", What: what},
		{Name: name + "-cpu", Unit: "s", What: "CPU of client, daemons and runners for it"},
		{Name: name + "-sent", Unit: "MB", What: "what the client sends for it"},
	}
}

// names lists the benchmarks.
func names() (all []string) {
	for _, b := range table {
		all = append(all, b.name)
	}
	return all
}

// figures lists the figures of all benchmarks, without values.
func figures() (all []figure) {
	for _, b := range table {
		all = append(all, b.figures...)
	}
	return all
}
