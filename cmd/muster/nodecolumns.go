package main

// The columns of listings of nodes and of GPUs.

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/cmd/muster/table"
	"github.com/musterhq/muster/job"
)

// nodeColumns returns the columns of a node, for a listing of these nodes.
func nodeColumns(nodes []api.Node) table.Columns[api.Node] {
	called := namesOf(nodes, func(n api.Node) (string, job.Peer) { return n.Name, n.ID })
	return table.Columns[api.Node]{
		{Name: "name", Help: "its name", Least: 6, Cell: func(n api.Node) string { return called(n.Name, n.ID) }},
		{Name: "state", Help: "ready, draining, suspect or lost", Cell: func(n api.Node) string { return string(n.State) }},
		{Name: "cpus", Help: "its CPUs", Cell: func(n api.Node) string { return strconv.Itoa(n.CPUs) }, Order: table.By(func(n api.Node) int { return n.CPUs })},
		{Name: "memory", Help: "its memory", Cell: func(n api.Node) string { return size(n.Memory) }, Order: table.By(func(n api.Node) int64 { return n.Memory })},
		{Name: "gpus", Help: "its GPUs by class; (sim) are simulated", Least: 8, Cell: func(n api.Node) string { return gpuSummary(n.GPUs) }, Order: table.By(func(n api.Node) int { return len(n.GPUs) })},
		{Name: "free", Help: "its free CPUs, and what is free of its GPUs; shares count as such", Cell: func(n api.Node) string { return freeOf(n) }, Order: table.By(func(n api.Node) float64 { return freeGPUs(n) + float64(n.Free.CPUs)/1e9 })},
		{Name: "free-memory", Help: "its free memory", Level: table.Wide, Cell: func(n api.Node) string { return ifAnswers(n, size(n.Free.Memory)) }, Order: table.By(func(n api.Node) int64 { return n.Free.Memory })},
		{Name: "running", Help: "how many tasks run there", Level: table.Wide, Cell: runningOf, Order: table.By(func(n api.Node) int { return n.RunningOr(-1) })},
		{Name: "cpus-used", Help: "its CPUs in use, by whichever program", Level: table.Wide, Cell: func(n api.Node) string { return inUse(n, nowCPUs, cpusText) }, Order: table.By(useOrder(nowCPUs))},
		{Name: "memory-used", Help: "its memory in use, by whichever program", Level: table.Wide, Cell: func(n api.Node) string { return inUse(n, nowMemory, bytesText) }, Order: table.By(useOrder(nowMemory))},
		{Name: "gpus-busy", Help: "how busy its GPUs are, on average", Level: table.Wide, Cell: func(n api.Node) string { return inUse(n, nowGPUs, percentText) }, Order: table.By(useOrder(nowGPUs))},
		{Name: "disk-io", Help: "what is read from its disks and written to them in a second", Level: table.Wide, Cell: func(n api.Node) string { return inUse(n, nowRead, bytesText) + " " + inUse(n, nowWrite, bytesText) }, Order: table.By(useOrder(nowRead, nowWrite))},
		{Name: "network", Help: "what it receives and sends in a second", Level: table.Wide, Cell: func(n api.Node) string { return inUse(n, nowReceived, bytesText) + " " + inUse(n, nowSent, bytesText) }, Order: table.By(useOrder(nowReceived, nowSent))},
		{Name: "labels", Help: "its labels", Least: 6, Cell: func(n api.Node) string { return dash(labels(marked(n), ",")) }},
		{Name: "reason", Help: "why it takes no tasks", Least: 6, Cell: func(n api.Node) string { return dash(localTimes(n.Detail)) }},
		{Name: "fencing", Help: "whether it ends tasks with their leases for certain", Level: table.Chosen, Cell: func(n api.Node) string { return dash(n.Fencing) }},
		{Name: "version", Help: "the version of its daemon", Level: table.Chosen, Cell: func(n api.Node) string { return n.Version }},
		{Name: "id", Help: "its id", Level: table.Wide, IsKey: true, Cell: func(n api.Node) string { return string(n.ID) }},
	}
}

// What a node uses now, by its document.
func nowCPUs(u *api.NodeNow) *float64     { return u.CPUs }
func nowMemory(u *api.NodeNow) *float64   { return u.Memory }
func nowGPUs(u *api.NodeNow) *float64     { return u.GPU }
func nowRead(u *api.NodeNow) *float64     { return u.Read }
func nowWrite(u *api.NodeNow) *float64    { return u.Write }
func nowReceived(u *api.NodeNow) *float64 { return u.Received }
func nowSent(u *api.NodeNow) *float64     { return u.Sent }

// inUse writes what a node uses of something, or that this is not known.
func inUse(n api.Node, what func(*api.NodeNow) *float64, text func(float64) string) string {
	if n.Usage == nil || what(n.Usage) == nil {
		return dash("")
	}
	return text(*what(n.Usage))
}

// useOrder returns the key by which nodes are sorted: the sum of what they use. Nodes whose use is not known come
// first.
func useOrder(whats ...func(*api.NodeNow) *float64) func(n api.Node) float64 {
	return func(n api.Node) (sum float64) {
		for _, what := range whats {
			if n.Usage == nil || what(n.Usage) == nil {
				return -1
			}
			sum += *what(n.Usage)
		}
		return sum
	}
}

func cpusText(x float64) string    { return strconv.FormatFloat(x, 'f', 1, 64) }
func percentText(x float64) string { return strconv.FormatFloat(x, 'f', 0, 64) + "%" }

// gpuSummary counts the GPUs of a node by class: "8 h100-80gb (sim)".
func gpuSummary(gpus []api.GPU) string {
	counts := map[string]int{}
	var order []string
	for _, g := range gpus {
		name := g.Class
		if g.Simulated {
			name += " (sim)"
		}
		if counts[name]++; counts[name] == 1 {
			order = append(order, name)
		}
	}
	parts := make([]string, 0, len(order))
	for _, name := range order {
		parts = append(parts, fmt.Sprintf("%d %s", counts[name], name))
	}
	return dash(strings.Join(parts, ", "))
}

// gpuColumns returns the columns of a GPU, for a listing of these GPUs.
func gpuColumns(gpus []api.GPU) table.Columns[api.GPU] {
	called := namesOf(gpus, func(g api.GPU) (string, job.Peer) { return g.Node, g.NodeID })
	return table.Columns[api.GPU]{
		{Name: "node", Help: "the node that has it", Least: 6, Cell: func(g api.GPU) string { return called(g.Node, g.NodeID) }},
		{Name: "index", Head: "#", Help: "its number on the node", Cell: func(g api.GPU) string { return strconv.Itoa(g.Index) }, Order: table.By(func(g api.GPU) int { return g.Index })},
		{Name: "model", Help: "its model", Least: 10, Cell: gpuModel},
		{Name: "class", Help: "its model and memory, as --gpus takes it", Level: table.Wide, Cell: func(g api.GPU) string { return g.Class }},
		{Name: "memory", Help: "its memory", Cell: func(g api.GPU) string { return size(g.Memory) }, Order: table.By(func(g api.GPU) int64 { return g.Memory })},
		{Name: "used", Help: "its memory in use, by whichever program", Cell: gpuUsed, Order: table.By(func(g api.GPU) int64 { return g.MemoryUsed })},
		{Name: "util", Help: "how busy it is; idle: a job has hardly used it for 15 minutes", Cell: gpuBusy, Order: table.By(func(g api.GPU) int { return g.Utilization })},
		{Name: "given", Help: "how much of it jobs have, from 0 to 1", Cell: gpuGiven, Order: table.By(givenOf)},
		{Name: "health", Help: "healthy, or what is wrong with it", Least: 7, Cell: func(g api.GPU) string { return withDetail(string(g.Health), g.Detail) }},
		{Name: "job", Help: "the jobs that have it, or a share of it", Least: 10, Cell: gpuJobs},
		{Name: "temperature", Help: "its temperature", Level: table.Chosen, Cell: func(g api.GPU) string { return unit(g.Temperature > 0, "%d°C", g.Temperature) }, Order: table.By(func(g api.GPU) int { return g.Temperature })},
		{Name: "power", Help: "the power that it draws", Level: table.Chosen, Cell: func(g api.GPU) string { return unit(g.Power > 0, "%.0fW", g.Power) }, Order: table.By(func(g api.GPU) float64 { return g.Power })},
		{Name: "node-id", Help: "the id of its node", Level: table.Chosen, Cell: func(g api.GPU) string { return string(g.NodeID) }},
		{Name: "uuid", Help: "its id", Level: table.Wide, IsKey: true, Cell: func(g api.GPU) string { return g.UUID }},
	}
}

// unit writes a figure that may not be known.
func unit(known bool, format string, value any) string {
	if !known {
		return "-"
	}
	return fmt.Sprintf(format, value)
}

func gpuModel(g api.GPU) string {
	if g.Simulated && !strings.Contains(strings.ToLower(g.Model), "simulated") {
		return g.Model + " (simulated)"
	}
	return g.Model
}

func gpuUsed(g api.GPU) string {
	switch {
	case g.MemoryUsed < 0:
		return "-"
	case g.MemoryUsed == 0:
		return "0B"
	}
	return size(g.MemoryUsed)
}

// gpuBusy also says that a task holds the GPU without using it.
func gpuBusy(g api.GPU) string {
	text := unit(g.Utilization >= 0, "%d%%", g.Utilization)
	if g.IdleSince != nil {
		text += " idle"
	}
	return text
}

// givenOf returns how much of a GPU jobs have.
func givenOf(g api.GPU) float64 { return g.Held() }

func gpuGiven(g api.GPU) string {
	given := givenOf(g)
	return unit(given > 0, "%s", share(given))
}

// share writes a number of GPUs, in which a share of a GPU counts as a fraction.
func share(gpus float64) string { return strconv.FormatFloat(math.Round(gpus*1000)/1000, 'f', -1, 64) }

// gpuJobs returns the jobs of a GPU.
func gpuJobs(g api.GPU) string {
	ids := make([]string, 0, len(g.Jobs))
	for _, id := range g.Jobs {
		ids = append(ids, string(id))
	}
	if len(ids) == 0 {
		return dash(string(g.Job)) // of a daemon of an earlier version
	}
	return strings.Join(ids, ",")
}

// ifAnswers returns the text, or a dash if the node does not answer, because then the value is not known.
func ifAnswers(n api.Node, text string) string {
	if n.State == api.NodeSuspect || n.State == api.NodeLost {
		return dash("")
	}
	return text
}

func runningOf(n api.Node) string { return ifAnswers(n, strconv.Itoa(n.RunningOr(0))) }

func freeOf(n api.Node) string {
	gpus := freeGPUs(n)
	word := "gpus"
	if gpus == 1 {
		word = "gpu"
	}
	return ifAnswers(n, fmt.Sprintf("%d %s, %s %s", n.Free.CPUs, plural(n.Free.CPUs, "cpu", "cpus"), share(gpus), word))
}

// freeGPUs returns how many GPUs of a node are free; a share of a GPU counts as a fraction.
func freeGPUs(n api.Node) (free float64) {
	for i := range n.GPUs {
		free += n.GPUs[i].Free
	}
	return free
}
