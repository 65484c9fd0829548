package load

// Settings of a synthetic load.

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/job"
)

// Synthetic has the settings of a synthetic load. Its zero value is not ready for use; see ParseSynthetic.
type Synthetic struct {
	name string
	pace
	durations    Distribution // seconds
	gpus         mix          // GPUs of a job
	sizes        []float64    // the numbers of gpus
	models       mix
	cpus         Distribution // for each GPU; for a job without GPUs, for the job
	memory       Distribution // bytes, likewise
	files        Distribution // bytes
	arrays       float64      // part of the jobs that are arrays
	arraySizes   mix
	arrayTasks   []float64
	priorities   mix
	priorityOf   []float64
	preemptible  float64 // part of the jobs
	users        mix
	limits       float64 // part of the jobs that have a time limit
	limitFactors Distribution
}

// pace says how many jobs arrive, and when.
type pace struct {
	jobs    int           // how many; 0: as many as arrive within the time
	within  time.Duration // see jobs
	offered float64       // the load that the jobs offer together; 0: they arrive at rate
	rate    float64       // jobs a second
	burst   float64       // jobs that arrive together, on average; 1: each on its own, 0: all at the beginning
}

// setting is one setting of a synthetic load.
type setting struct {
	name, otherwise, help string
	set                   func(s *Synthetic, value string) error
}

const anyModel = "any"

// settings lists the settings in the order of the documentation. Those without a default are left out unless given.
var settings = []setting{
	{"jobs", "", "number of jobs; or give for", func(s *Synthetic, v string) (err error) {
		s.jobs, err = wholeIn(v, 1, MaxJobs)
		return err
	}},
	{"for", "", "jobs arrive for so long, such as 24h", func(s *Synthetic, v string) error {
		d, err := job.ParseDuration(v)
		if err == nil && d == 0 {
			err = errors.New("want more than 0s")
		}
		s.within = d.D()
		return err
	}},
	{"load", "", "work that they ask for, of what the GPUs of the cluster can do: 0.8; or give rate", func(s *Synthetic, v string) (err error) {
		s.offered, err = ParseOffered(v)
		return err
	}},
	{"rate", "", "jobs that arrive in a time: 120/h", func(s *Synthetic, v string) (err error) {
		s.rate, err = parseRate(v)
		return err
	}},
	{"arrivals", "poisson", "poisson; bursty(size=20): bursts of that many jobs of one user on average; or once: all at the beginning", (*Synthetic).setArrivals},
	{"durations", "lognormal(median=10m,sigma=1.5,max=7d)", "how long each task runs, a distribution", func(s *Synthetic, v string) (err error) {
		s.durations, err = parseDistribution(v, inSeconds, maxRuns.Seconds())
		return err
	}},
	{"gpus", "1:0.7,2:0.1,4:0.1,8:0.1", "GPUs of a job: 0 is none, 0.5 half of one; more than a machine has are a gang", func(s *Synthetic, v string) (err error) {
		s.gpus, s.sizes, err = parseNumbers(v, checkGPUs)
		return err
	}},
	{"models", anyModel, "models of the GPUs: any:0.7,A100|H100:0.3", func(s *Synthetic, v string) (err error) {
		s.models, err = parseMix(v)
		for _, c := range s.models {
			if slices.ContainsFunc(strings.Split(c.text, job.ModelOr), func(one string) bool { return strings.TrimSpace(one) == "" }) {
				return fmt.Errorf("%.40q: the name of a model is empty", c.text)
			}
		}
		return err
	}},
	{"cpus", "4", "CPUs for each GPU, and of a job without GPUs, a distribution", func(s *Synthetic, v string) (err error) {
		s.cpus, err = parseDistribution(v, inNumbers, maxCPUs/milli)
		return err
	}},
	{"memory", "16GiB", "memory for each GPU, and of a job without GPUs, a distribution", func(s *Synthetic, v string) (err error) {
		s.memory, err = parseDistribution(v, inBytes, maxMemory)
		return err
	}},
	{"files", "0B", "size of the files of a job, a distribution", func(s *Synthetic, v string) (err error) {
		s.files, err = parseDistribution(v, inBytes, maxMemory)
		return err
	}},
	{"arrays", "0", "part of the jobs that are arrays", func(s *Synthetic, v string) (err error) {
		s.arrays, err = parsePart(v)
		return err
	}},
	{"array_sizes", "10:0.8,100:0.2", "tasks of an array", func(s *Synthetic, v string) (err error) {
		s.arraySizes, s.arrayTasks, err = parseNumbers(v, wholeNumber(1, job.MaxTasks))
		return err
	}},
	{"priorities", "50", "priorities of the jobs, 0 to 100: 50:0.9,80:0.1", func(s *Synthetic, v string) (err error) {
		s.priorities, s.priorityOf, err = parseNumbers(v, wholeNumber(0, job.MaxPriority))
		return err
	}},
	{"preemptible", "0", "part of the jobs that may be preempted", func(s *Synthetic, v string) (err error) {
		s.preemptible, err = parsePart(v)
		return err
	}},
	{"users", "user", "who submits: ann:3,bob:1", func(s *Synthetic, v string) (err error) {
		s.users, err = parseMix(v)
		return err
	}},
	{"limits", "0", "part of the jobs that have a time limit, which schedulers know", func(s *Synthetic, v string) (err error) {
		s.limits, err = parsePart(v)
		return err
	}},
	{"limit_factors", "uniform(min=1,max=3)", "time limit over duration, a distribution; below 1 is 1", func(s *Synthetic, v string) (err error) {
		s.limitFactors, err = parseDistribution(v, inNumbers, 1e6)
		return err
	}},
}

// SyntheticHelp returns a line for each setting of a synthetic load: its name, what it means, and its default.
func SyntheticHelp() []string {
	var lines []string
	for _, s := range settings {
		line := fmt.Sprintf("%-14s %s", s.name, s.help)
		if s.otherwise != "" {
			line += " (" + s.otherwise + ")"
		}
		lines = append(lines, line)
	}
	return lines
}

const maxSettings = 1 << 20 // bytes

// ParseSynthetic reads the settings of a synthetic load: one "name: value" a line, or several in a line between
// semicolons; = does for the colon, and # begins a comment. Name is what errors call the text. See SyntheticHelp for the
// settings. Times and sizes need a unit. A setting that is unknown or there twice is an error that names its line.
func ParseSynthetic(name, text string) (Synthetic, error) {
	s := Synthetic{name: name}
	if len(text) > maxSettings {
		return s, fmt.Errorf("%s: more than %s", name, job.Size(maxSettings))
	}
	for _, x := range settings {
		if x.otherwise == "" {
			continue
		}
		if err := x.set(&s, x.otherwise); err != nil {
			return s, fmt.Errorf("%s: the default of %s: %w", name, x.name, err)
		}
	}
	given := map[string]bool{}
	number := 0
	for line := range strings.SplitSeq(strings.TrimPrefix(text, "\ufeff"), "\n") {
		number++
		line, _, _ = strings.Cut(line, "#")
		for part := range strings.SplitSeq(line, ";") {
			if err := s.set(strings.TrimSpace(part), given); err != nil {
				return s, fmt.Errorf("%s:%d: %w", name, number, err)
			}
		}
	}
	return s, s.check(given)
}

// set applies one setting.
func (s *Synthetic) set(text string, given map[string]bool) error {
	if text == "" {
		return nil
	}
	i := strings.IndexAny(text, ":=")
	if i < 0 {
		return fmt.Errorf("%.60q: want NAME: VALUE", text)
	}
	name, value := strings.TrimSpace(text[:i]), strings.TrimSpace(text[i+1:])
	at := slices.IndexFunc(settings, func(x setting) bool { return x.name == name })
	if at < 0 {
		var names []string
		for _, x := range settings {
			names = append(names, x.name)
		}
		return fmt.Errorf("unknown setting %.40q; there are %s", name, strings.Join(names, ", "))
	}
	if given[name] {
		return fmt.Errorf("%s is there twice", name)
	}
	given[name] = true
	if err := settings[at].set(s, value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// check returns an error if settings conflict.
func (s *Synthetic) check(given map[string]bool) error {
	switch once := s.burst == 0; {
	case given["jobs"] == given["for"]:
		return fmt.Errorf("%s: give either jobs or for", s.name)
	case once && (given["load"] || given["rate"] || given["for"]):
		return fmt.Errorf("%s: with arrivals: once all jobs arrive together; give jobs, and neither load, rate nor for", s.name)
	case !once && given["load"] == given["rate"]:
		return fmt.Errorf("%s: give either load or rate", s.name)
	}
	return nil
}

func (s *Synthetic) setArrivals(v string) error {
	switch name, rest, _ := strings.Cut(v, "("); name {
	case "poisson":
		s.burst = 1
	case "once":
		s.burst = 0
	case "bursty":
		size, ok := strings.CutPrefix(strings.ReplaceAll(rest, " ", ""), "size=")
		size, closed := strings.CutSuffix(size, ")")
		x, err := parseNumber(size)
		if !ok || !closed || err != nil || !(x > 1 && x <= MaxJobs) {
			return fmt.Errorf("%.40q: want bursty(size=20), with a size above 1", v)
		}
		s.burst = x
		return nil
	default:
		return fmt.Errorf("%.40q: want poisson, bursty(size=20) or once", v)
	}
	if strings.Contains(v, "(") {
		return fmt.Errorf("%.40q: want poisson, bursty(size=20) or once", v)
	}
	return nil
}

// parseRate parses a rate of jobs, such as 120/h or 3/10m, and returns jobs a second.
func parseRate(text string) (float64, error) {
	number, per, there := strings.Cut(text, "/")
	x, err := parseNumber(strings.TrimSpace(number))
	per = strings.TrimSpace(per)
	if per != "" && strings.Trim(per[:1], "0123456789.") != "" {
		per = "1" + per
	}
	d, badTime := job.ParseDuration(per)
	rate := x / d.D().Seconds()
	if !there || err != nil || badTime != nil || !(rate >= leastRate && rate <= mostRate) {
		return 0, fmt.Errorf("%.40q: want jobs in a time, such as 120/h", text)
	}
	return rate, nil
}

// The bounds of rates keep all times within maxTime and above a nanosecond.
const (
	leastRate = 1e-7
	mostRate  = 1e6
)

func wholeIn(text string, least, most int) (int, error) {
	x, err := parseNumber(text)
	if err != nil {
		return 0, err
	}
	return int(x), wholeNumber(least, most)(x)
}

// wholeNumber returns a check that a number is whole and within bounds.
func wholeNumber(least, most int) func(float64) error {
	return func(x float64) error {
		if x != float64(int(x)) || x < float64(least) || x > float64(most) {
			return fmt.Errorf("%v: want a whole number from %d to %d", x, least, most)
		}
		return nil
	}
}

func checkGPUs(x float64) error {
	if x > 0 && x < 1 && x >= 1.0/milli {
		return nil
	}
	if err := wholeNumber(0, job.MaxGPUs)(x); err != nil {
		return fmt.Errorf("%v: want a whole number of GPUs up to %d, or a part of one, such as 0.5", x, job.MaxGPUs)
	}
	return nil
}

// parseNumbers parses a mix of numbers, each of which must pass the check.
func parseNumbers(text string, check func(float64) error) (mix, []float64, error) {
	m, err := parseMix(text)
	if err != nil {
		return nil, nil, err
	}
	var numbers []float64
	for _, c := range m {
		x, err := parseNumber(c.text)
		if err == nil {
			err = check(x)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%.40q: %w", c.text, err)
		}
		numbers = append(numbers, x)
	}
	return m, numbers, nil
}
