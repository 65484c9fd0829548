package load

// Writing tables of jobs.

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

// WriteJobs writes a table that ReadJobs reads back as the same jobs, except for what a table has no column for, such
// as a constraint.
func WriteJobs(w io.Writer, jobs []Job) error {
	out := csv.NewWriter(w)
	var header []string
	for _, c := range jobColumns {
		header = append(header, c.name)
	}
	if err := out.Write(header); err != nil {
		return fmt.Errorf("write a table of jobs: %w", err)
	}
	for _, j := range jobs {
		if err := out.Write(j.row()); err != nil {
			return fmt.Errorf("write a table of jobs: %w", err)
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("write a table of jobs: %w", err)
	}
	return nil
}

// row returns the fields of a job in the order of jobColumns.
func (j Job) row() []string {
	s, need := j.Spec, j.Spec.Resources
	nodes := max(1, s.Nodes)
	row := []string{
		j.Name, secondsText(j.Submit), secondsText(j.Runs),
		strconv.Itoa(gpu.Count(need) * nodes), strconv.Itoa(gpu.Milli(need)), strconv.Itoa(need.CPUs * nodes), mebibytesText(need.Memory * job.Size(nodes)),
		need.GPUModel, j.Class, strconv.Itoa(s.Priority), j.User, s.Project, "", "", "", "", "",
	}
	rest := row[len(row)-5:]
	if nodes > 1 {
		rest[0] = strconv.Itoa(nodes)
	}
	if s.Array != "" || len(s.EachLine) > 0 {
		rest[1] = strconv.Itoa(j.tasks() / nodes)
	}
	if s.TimeLimit > 0 {
		rest[2] = secondsText(s.TimeLimit.D())
	}
	if s.Preemptible {
		rest[3] = "yes"
	}
	if j.Bytes > 0 {
		rest[4] = mebibytesText(job.Size(j.Bytes))
	}
	return row
}

// secondsText writes a duration in seconds, with all digits but trailing zeros.
func secondsText(d time.Duration) string {
	text := fmt.Sprintf("%d.%09d", d/time.Second, d%time.Second)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

func mebibytesText(s job.Size) string { return strconv.FormatFloat(float64(s)/(1<<20), 'f', -1, 64) }
