package main

// What show says of the use of resources: as seff does, beside what was asked for.

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/cmd/muster/table"
)

// usageNow returns what the only task of a running job uses now; nil if the job has several tasks, or the usage is not
// known.
func usageNow(ctx context.Context, client *api.Client, j api.Job) *api.TaskUsage {
	if j.TaskCount != 1 || len(j.Tasks) != 1 || j.State.Ended() || j.Tasks[0].StartedAt == nil {
		return nil
	}
	u, err := client.TaskUsage(ctx, j.ID, j.Tasks[0].Task)
	if err != nil {
		return nil // show prints the rest without it
	}
	return &u
}

// usageRows writes what a task uses or has used. A figure that is not known is left out.
func usageRows(w *table.Sheet, j api.Job, t api.Task, now *api.TaskUsage) {
	used := t.Used
	if now != nil {
		used = now.Used
	}
	if used == nil {
		return
	}
	what := "used"
	for _, line := range usageLines(j, t, used) {
		row(w, what, line)
		what = ""
	}
	if now != nil {
		for _, g := range now.Idle {
			row(w, "", "gpu "+g.UUID+" idle "+idleFor(g))
		}
	}
}

// usageLines returns how much a task has used of what its job asked for.
func usageLines(j api.Job, t api.Task, u *api.Used) (lines []string) {
	need := j.Resources
	if u.CPUSeconds != nil {
		line := "cpu " + seconds(math.Round(*u.CPUSeconds*10)/10)
		if ran := ranFor(t, nowOf(j)); ran > 0 {
			line += fmt.Sprintf(": %.2f cpus", *u.CPUSeconds/ran) + ofWhole(*u.CPUSeconds/ran, float64(need.CPUs), fmt.Sprint(need.CPUs))
		}
		lines = append(lines, line)
	}
	if u.MemoryPeak != nil {
		lines = append(lines, "memory "+bytesText(*u.MemoryPeak)+" at most"+ofWhole(*u.MemoryPeak, float64(need.Memory), size(need.Memory)))
	}
	if u.ReadBytes != nil && u.WrittenBytes != nil {
		lines = append(lines, "disk "+bytesText(*u.ReadBytes)+" read, "+bytesText(*u.WrittenBytes)+" written")
	}
	var gpus []string
	if u.GPU != nil {
		gpus = append(gpus, fmt.Sprintf("%.0f%% busy", *u.GPU))
	}
	if u.GPUMemory != nil {
		gpus = append(gpus, bytesText(*u.GPUMemory)+" at most")
	}
	if u.Power != nil {
		gpus = append(gpus, fmt.Sprintf("%.0f W", *u.Power))
	}
	if len(gpus) > 0 {
		lines = append(lines, "gpu "+strings.Join(gpus, ", "))
	}
	return lines
}

// ofWhole says which part of the requested amount a value is; empty if nothing was requested.
func ofWhole(x, whole float64, text string) string {
	if whole <= 0 {
		return ""
	}
	return fmt.Sprintf(" of %s (%.0f%%)", text, 100*x/whole)
}

// idleFor returns for how long a GPU has been idle. If its node has an earlier version, it returns since when, by the
// node's clock.
func idleFor(g api.IdleGPU) string {
	if g.Seconds == 0 {
		return "since " + clock(&g.Since)
	}
	return "for " + seconds(math.Round(g.Seconds))
}

// ranFor returns how many seconds the newest attempt of a task has run; 0: not known. now is the time by the clock that
// its times are from.
func ranFor(t api.Task, now time.Time) float64 {
	if t.StartedAt == nil {
		return 0
	}
	end := now
	if t.EndedAt != nil {
		end = *t.EndedAt
	}
	return max(0, end.Sub(*t.StartedAt).Seconds())
}

// bytesText writes a number of bytes in three digits.
func bytesText(n float64) string {
	const step = 1024
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	i := 0
	for n >= 999.5 && i+1 < len(units) {
		n, i = n/step, i+1
	}
	if i == 0 || n >= 99.95 {
		return fmt.Sprintf("%.0f%s", n, units[i])
	}
	return fmt.Sprintf("%.1f%s", n, units[i])
}
