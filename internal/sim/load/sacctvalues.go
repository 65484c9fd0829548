package load

// The values that sacct prints.

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

func isPrintable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// sacctTime parses a time. The zone does not matter, because only differences between times of one file are used.
func sacctTime(text string) (time.Time, bool) {
	for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05-0700", "2006-01-02 15:04:05"} {
		if at, err := time.Parse(layout, text); err == nil && at.Year() > 1970 {
			return at, true
		}
	}
	if n, err := strconv.ParseUint(text, 10, 40); err == nil && n > 0 { // SLURM_TIME_FORMAT=%s
		return time.Unix(int64(n), 0), true
	}
	return time.Time{}, false
}

// sacctSpan parses [DAYS-[HOURS:]]MINUTES:SECONDS, with DAYS-HOURS and so on, and a fraction of a second.
func sacctSpan(text string) (time.Duration, bool) {
	days, clock, hasDays := strings.Cut(text, "-")
	if !hasDays {
		days, clock = "0", text
	}
	parts := strings.Split(clock, ":")
	units := []float64{60, 1} // MINUTES:SECONDS
	switch {
	case hasDays || len(parts) == 3:
		units = []float64{3600, 60, 1}
	case len(parts) == 1:
		units = []float64{60} // as for --time
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil || len(parts) > len(units) {
		return 0, false
	}
	seconds := float64(n) * 86_400
	for i, p := range parts {
		x, err := parseNumber(p)
		if err != nil || x < 0 || x > 1e9 {
			return 0, false
		}
		seconds += x * units[i]
	}
	if seconds > maxTime.Seconds() {
		return maxTime, true
	}
	return time.Duration(math.Round(seconds * float64(time.Second))), true
}

// elapsed returns how long the job ran.
func (s *sacct) elapsed() (time.Duration, bool) {
	if n, err := strconv.ParseUint(s.field("elapsedraw"), 10, 32); err == nil {
		return time.Duration(n) * time.Second, true
	}
	if d, ok := sacctSpan(s.field("elapsed")); ok {
		return d, true
	}
	start, ok1 := sacctTime(s.field("start"))
	end, ok2 := sacctTime(s.field("end"))
	if !ok1 || !ok2 || end.Before(start) {
		return 0, false
	}
	return end.Sub(start), true
}

// setLimit sets the time limit, if there is one. Slurm ends a job some time after it.
func (s *sacct) setLimit(j *Job) {
	var limit time.Duration
	if n, err := strconv.ParseUint(s.field("timelimitraw"), 10, 32); err == nil {
		limit = time.Duration(n) * time.Minute
	} else if d, ok := sacctSpan(s.field("timelimit")); ok {
		limit = d
	}
	if limit == 0 || limit > job.MaxTimeLimit {
		return
	}
	if limit < j.Runs {
		s.count(s.changed, "jobs ran longer than their time limit; it is as long as they ran")
		limit = j.Runs
	}
	j.Spec.TimeLimit = job.Duration(limit)
}

// tres is what trackable resources say.
type tres struct {
	cpus, gpus, nodes float64
	mps               float64 // hundredths of a GPU
	shards            bool    // parts of a GPU of unknown size
	memory            job.Size
	models            []string
}

// parseTRES parses "billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1".
func parseTRES(text string) (t tres) {
	typed := 0.0
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if name == "mem" {
			t.memory = sacctMemory(value)
			continue
		}
		x, err := parseNumber(value)
		if err != nil || x < 0 || x > 1e9 {
			continue
		}
		gres, model, isTyped := strings.Cut(name, ":")
		switch gres {
		case "cpu":
			t.cpus = x
		case "node":
			t.nodes = x
		case "gres/mps":
			t.mps = x
		case "gres/shard":
			t.shards = t.shards || x > 0
		case "gres/gpu":
			if !isTyped {
				t.gpus = x
			} else if typed += x; x > 0 && model != "" {
				t.models = append(t.models, model)
			}
		}
	}
	t.gpus = max(t.gpus, typed)
	return t
}

// sacctMemory parses 64G, 1.50T, 976.56M or 4000, which is in MiB.
func sacctMemory(text string) job.Size {
	if text == "" {
		return 0
	}
	times := float64(1 << 20)
	if i := strings.IndexByte("KMGTP", text[len(text)-1]&^0x20); i >= 0 {
		times, text = float64(int64(1)<<(10*(i+1))), text[:len(text)-1]
	}
	x, err := parseNumber(text)
	if err != nil || x < 0 || x*times > maxMemory {
		return 0
	}
	return job.Size(math.Round(x * times))
}

// reqMem parses ReqMem. Older versions add c for each CPU, or n for each node.
func reqMem(text string, cpus, nodes float64) job.Size {
	times := 1.0
	switch {
	case strings.HasSuffix(text, "c"):
		times = cpus
	case strings.HasSuffix(text, "n"):
		times = nodes
	}
	size := float64(sacctMemory(strings.TrimRight(text, "cn?"))) * max(1, times)
	return job.Size(min(size, maxMemory))
}

// reqGRES parses what older versions print instead of ReqTRES, for each node: "gpu:tesla:2", "gres:gpu:2" or "gpu".
func reqGRES(text string) (gpus float64, models []string) {
	for part := range strings.SplitSeq(text, ",") {
		words := strings.Split(strings.TrimPrefix(strings.TrimSpace(part), "gres:"), ":")
		if words[0] != "gpu" {
			continue
		}
		n, err := parseNumber(words[len(words)-1])
		if err != nil || n < 0 || n > 1e9 {
			n = 1
		} else {
			words = words[:len(words)-1]
		}
		if gpus += n; len(words) > 1 {
			models = append(models, words[1])
		}
	}
	return gpus, models
}

// setNeed sets what the job asks for, or returns why it is left out.
func (s *sacct) setNeed(j *Job) (why string) {
	held, asked := parseTRES(s.field("alloctres")), parseTRES(s.field("reqtres"))
	number := func(columns ...string) float64 {
		x, err := parseNumber(s.first(columns...))
		if err != nil || x < 0 || x > 1e9 {
			return 0
		}
		return x
	}
	or := func(numbers ...float64) float64 {
		for _, x := range numbers {
			if x > 0 {
				return x
			}
		}
		return 0
	}
	nodes := max(1, or(held.nodes, asked.nodes, number("nnodes", "allocnodes", "reqnodes")))
	cpus := or(held.cpus, asked.cpus, number("ncpus", "alloccpus", "reqcpus"))
	memory := job.Size(or(float64(held.memory), float64(asked.memory), float64(reqMem(s.field("reqmem"), cpus, nodes))))
	gres, models := reqGRES(s.field("reqgres"))
	gpus := or(held.gpus, asked.gpus, gres*nodes)
	if len(asked.models) > 0 {
		models = asked.models
	}
	mps := or(held.mps, asked.mps)
	switch {
	case gpus == 0 && (held.shards || asked.shards):
		return "jobs that asked for gres/shard, because the accounting does not tell how large a shard is"
	case gpus > job.MaxGPUs || gpus != math.Trunc(gpus):
		return fmt.Sprintf("jobs with more than %d GPUs", job.MaxGPUs)
	case cpus/nodes*milli > maxCPUs:
		return fmt.Sprintf("jobs with more than %d CPUs on a node", maxCPUs/milli)
	case nodes > job.MaxNodes || nodes != math.Trunc(nodes):
		return fmt.Sprintf("jobs of more than %d nodes", job.MaxNodes)
	}
	need := &j.Spec.Resources
	need.CPUs, need.Memory, need.GPUs = int(cpus*milli), memory, int(gpus)
	if mps > 0 && mps < 100 && gpus == 0 && nodes == 1 {
		need.GPUShare = mps / 100
	} else if mps > 0 && gpus == 0 {
		need.GPUs = over(int(min(mps, 1e6)), 100)
	}
	s.setModel(need, models)
	if need.GPUs%int(nodes) != 0 {
		s.count(s.changed, "jobs had a different number of GPUs on their nodes; they have as few nodes as can hold them")
		return ""
	}
	j.gang(int(nodes))
	return ""
}

// setModel sets the models that a job with GPUs asked for by name.
func (s *sacct) setModel(need *job.Resources, models []string) {
	if gpu.Count(*need) == 0 || len(models) == 0 || s.o.AnyModel {
		return
	}
	name := contract.ModelName(strings.Join(models, job.ModelOr))
	if len(models) > 1 {
		s.count(s.changed, "jobs asked for GPUs of several models; any of these will do for each GPU")
	}
	if len(name) > maxText || !isPrintable(name) {
		s.count(s.changed, "jobs have no model, because its name is too long or not printable")
		return
	}
	kept, there := s.texts[name]
	if !there {
		kept = name
		if len(s.texts) < maxKept {
			s.texts[kept] = kept
		}
	}
	need.GPUModel = kept
}
