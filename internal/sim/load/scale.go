package load

// The offered load: the work of the jobs, divided by what the cluster can do.

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/musterhq/muster/gpu"
)

// MaxOffered bounds the load to which jobs are scaled.
const MaxOffered = 100.0

// Work returns what a job needs in all: GPUs times seconds, and CPUs times seconds. A share of a GPU counts as this
// fraction.
func (j Job) Work() (gpus, cpus float64) {
	n := float64(j.tasks()) * j.Runs.Seconds()
	need := j.Spec.Need()
	return n * float64(gpu.Count(need)*gpu.Milli(need)) / gpu.Whole, n * float64(need.CPUs) / milli
}

// tasks returns how many tasks the job has; each member of a gang is one.
func (j Job) tasks() int {
	if j.Spec.Array == "" && len(j.Spec.EachLine) == 0 {
		return max(1, j.Spec.Nodes)
	}
	layout, err := j.Spec.Layout()
	if err != nil {
		return 1
	}
	return layout.Tasks()
}

// Offered returns the offered load: the work of all jobs, divided by what the cluster can do between the first and the
// last submission. It counts GPUs, or CPUs if the cluster has no GPU. 1 means that the jobs ask for exactly the whole
// cluster. It is infinite if all jobs are submitted at once.
func (l Load) Offered() float64 {
	c := capacityOf(l.Machines)
	return c.workOf(l.Jobs) / (c.devices * l.span().Seconds())
}

// capacity is the capacity against which load is measured.
type capacity struct {
	gpus    bool // otherwise CPUs, because there is no GPU
	devices float64
}

func capacityOf(machines []Machine) capacity {
	gpus, cpus := 0, 0
	for _, m := range machines {
		gpus, cpus = gpus+m.GPUs, cpus+m.CPUs
	}
	if gpus > 0 {
		return capacity{true, float64(gpus)}
	}
	return capacity{false, float64(cpus) / milli}
}

// work returns the GPU-seconds, or CPU-seconds, that a job needs.
func (c capacity) work(j Job) float64 {
	gpus, cpus := j.Work()
	if c.gpus {
		return gpus
	}
	return cpus
}

func (c capacity) workOf(jobs []Job) float64 {
	work := 0.0
	for _, j := range jobs {
		work += c.work(j)
	}
	return work
}

// span returns the time between the first and the last submission.
func (l Load) span() time.Duration {
	if len(l.Jobs) == 0 {
		return 0
	}
	return l.Jobs[len(l.Jobs)-1].Submit - l.Jobs[0].Submit
}

// ParseOffered parses an offered load: 0.8, or 80%.
func ParseOffered(text string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	x, err := parseNumber(number)
	if err != nil {
		return 0, fmt.Errorf("load %.40q: %w, such as 0.8 or 80%%", text, err)
	}
	if percent {
		x /= 100
	}
	return x, checkOffered(x)
}

func checkOffered(x float64) error {
	if !(x > 0 && x <= MaxOffered) {
		return fmt.Errorf("load %v: want more than 0, and at most %v", x, MaxOffered)
	}
	return nil
}

// ScaleTo moves the submissions so that the offered load has this value: all times since the first submission are
// multiplied by the same factor.
func (l *Load) ScaleTo(offered float64) error {
	if err := checkOffered(offered); err != nil {
		return err
	}
	if l.span() == 0 {
		return errAtOnce
	}
	c := capacityOf(l.Machines)
	span, err := c.spanFor(c.workOf(l.Jobs), offered)
	if err != nil {
		return err
	}
	factor, first := span/l.span().Seconds(), l.Jobs[0].Submit
	if first.Seconds()+span > maxTime.Seconds() {
		return errLate
	}
	for i := range l.Jobs {
		l.Jobs[i].Submit = first + time.Duration(math.Round(float64(l.Jobs[i].Submit-first)*factor))
	}
	return nil
}

var (
	errAtOnce = errors.New("load: all jobs are submitted at the same time, so their load cannot be scaled")
	errLate   = fmt.Errorf("load: the last job would be submitted after more than %.0f days", maxTime.Hours()/24)
)

// spanFor returns the number of seconds in which jobs with this work must be submitted to offer this load.
func (c capacity) spanFor(work, offered float64) (float64, error) {
	switch {
	case c.devices == 0:
		return 0, errors.New("load: the cluster has neither GPUs nor CPUs")
	case work == 0 && c.gpus:
		return 0, errors.New("load: the jobs ask for no GPU time, so their load cannot be scaled")
	case work == 0:
		return 0, errors.New("load: the cluster has no GPUs and the jobs ask for no CPU time, so their load cannot be scaled")
	}
	span := work / (c.devices * offered)
	if span > maxTime.Seconds() {
		return 0, errLate
	}
	return span, nil
}
