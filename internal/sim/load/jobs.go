package load

// Tables of jobs: the queueing experiment.

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/musterhq/muster/job"
)

// Options say how a table of jobs is read.
type Options struct {
	// Cluster is the machines for which the jobs are. A job that they could never run is an error. Without machines
	// nothing is checked, and no job becomes a gang because of its width.
	Cluster []Machine
	// Known says that schedulers know how long each job runs. That time is then the job's time limit; for a preemptible
	// job, the cost of a restart is added. Otherwise a job has the limit that its source gives, or none.
	Known bool
	// Preemptible says that all jobs may be preempted, not only those whose source says so.
	Preemptible bool
	// Experiment says that the jobs of a table without a column preemptible may be preempted, too, as in the public
	// queueing experiment.
	Experiment bool
	// Restart is what a start after a preemption costs. With Known, the time limit of a preemptible job includes it.
	Restart time.Duration
	// Open returns the text of a job file that a list names. If it is nil, a list of job files is an error.
	Open func(file string) ([]byte, error)
}

// command is the command of all jobs. It makes their specs valid; a simulation runs no command.
var command = []string{"simulated"}

// maxRuns bounds how long a task runs, because that may become its time limit.
const maxRuns = job.MaxTimeLimit

var jobColumns = append(
	must("job", "submit_s", "duration_s", "num_gpu", "gpu_milli", "cpu_milli", "memory_mib", "gpu_spec", "class", "priority"),
	may("user", "project", "nodes", "tasks", "time_limit_s", "preemptible", "files_mib")...)

// ReadJobs reads a table of jobs. Name is what errors call it. Its columns, in any order, are
//
//	job           the name
//	submit_s      when it is submitted, in seconds from the beginning of the simulation
//	duration_s    how long each of its tasks runs, in seconds
//	num_gpu       number of GPUs; of a gang, those of all its nodes
//	gpu_milli     thousandths of each GPU; below 1000 only if num_gpu is 1
//	cpu_milli     CPUs, in thousandths; of a gang, those of all its nodes
//	memory_mib    memory, in MiB; of a gang, that of all its nodes
//	gpu_spec      models that will do, joined by |; empty: any. It means nothing if num_gpu is 0
//	class         by which results are grouped; may be empty
//	priority      0 to 100, larger goes first; empty: 50
//	user, project optional: whose it is
//	nodes         optional: it is a gang of so many nodes; empty or 0: as few as can hold it
//	tasks         optional: it is an array of so many tasks, each of which asks for what the row says; empty or 0: one task
//	time_limit_s  optional: the limit that schedulers know, in seconds, not below duration_s; empty or 0: none
//	preemptible   optional: yes or no (1, 0, true, false); empty: no; a table without it: see Options.Experiment
//	files_mib     optional: size of its files, in MiB; empty: 0
//
// If a job without nodes asks for more GPUs than the widest machine with its models has, it becomes a gang of as few
// nodes as can hold it. Its GPUs, CPUs and memory are split evenly, and rounded up if they do not divide.
//
// A table with a column "file" is a list of job files instead; see readList.
//
// ReadJobs returns the jobs in the order of their submission; jobs with the same time are in the order of the file. The
// notes, one line each, say what was changed: sorted, rounded. An unknown column, a duplicate name, a value out of
// range, and a job that the cluster could never run are errors that name the line and the column.
func ReadJobs(name string, r io.Reader, o Options) (jobs []Job, notes []string, err error) {
	t, err := readHeader(name, r)
	if err != nil {
		return nil, nil, err
	}
	rd := &jobReader{table: t, o: o, cluster: clusterOf(o.Cluster), lines: map[string]int{}}
	if t.has("file") {
		err = rd.readList()
	} else {
		err = rd.readRows()
	}
	if err != nil {
		return nil, nil, err
	}
	rd.sort()
	return rd.jobs, rd.notes, nil
}

// jobReader reads the jobs of a table, or of a list of job files.
type jobReader struct {
	*table
	o       Options
	cluster cluster
	lines   map[string]int // line of each name
	jobs    []Job
	notes   []string

	rounded int // gangs that hold more GPUs than they ask for
	wide    string
}

func (rd *jobReader) readRows() error {
	if err := rd.expect(jobColumns); err != nil {
		return err
	}
	for rd.next(MaxJobs) {
		j := rd.job()
		rd.add(j, "job")
	}
	if rd.rounded > 0 {
		rd.notes = append(rd.notes, roundedNote(rd.name, rd.rounded, rd.wide))
	}
	return rd.end()
}

// add adds a job if its name, which is in the column, is new.
func (rd *jobReader) add(j Job, column string) {
	if first, twice := rd.lines[j.Name]; twice {
		rd.fail(column, "a second job of the name %.40q; the first is in line %d", j.Name, first)
	}
	rd.lines[j.Name] = rd.line
	if rd.err == nil {
		rd.jobs = append(rd.jobs, j)
	}
}

// sort sorts the jobs by the time of their submission.
func (rd *jobReader) sort() {
	early := 0
	for i := 1; i < len(rd.jobs); i++ {
		if rd.jobs[i].Submit < rd.jobs[i-1].Submit {
			early++
		}
	}
	if early > 0 {
		slices.SortStableFunc(rd.jobs, func(a, b Job) int { return cmp.Compare(a.Submit, b.Submit) })
		rd.notes = append(rd.notes, fmt.Sprintf("%s: %d rows are submitted before the row above them; the jobs were sorted by submit_s", rd.name, early))
	}
}

// job reads a row.
func (rd *jobReader) job() Job {
	x := rd.request("job")
	j := Job{Name: x.Name, User: rd.text("user"), Class: rd.text("class"), Spec: job.DefaultSpec()}
	rd.times(&j)
	j.Spec.Name, j.Spec.Command, j.Spec.Project = x.Name, command, rd.text("project")
	if err := job.CheckProject(j.Spec.Project); err != nil {
		rd.fail("project", "%w", err)
	}
	j.Spec.Resources = x.Need
	j.Spec.Priority = rd.wholeOr("priority", 0, job.MaxPriority, j.Spec.Priority)
	j.Spec.Preemptible = rd.yes("preemptible") || rd.o.Preemptible || rd.o.Experiment && !rd.has("preemptible")
	rd.limit(&j, rd.timeLimit())
	if n := rd.wholeOr("tasks", 0, job.MaxTasks, 0); n > 0 {
		j.Spec.Array = "0-" + strconv.Itoa(n-1)
	}
	rd.split(&j, rd.wholeOr("nodes", 0, job.MaxNodes, 0))
	if _, err := j.Spec.Layout(); err != nil {
		rd.fail("tasks", "%w", err)
	}
	rd.check(j.Spec)
	return j
}

// times reads when a job is submitted, how long it runs, and how large its files are.
func (rd *jobReader) times(j *Job) {
	j.Submit, j.Runs = rd.seconds("submit_s", maxTime), rd.seconds("duration_s", maxRuns)
	if rd.field("files_mib") != "" {
		j.Bytes = int64(rd.mebibytes("files_mib"))
	}
}

func (rd *jobReader) timeLimit() job.Duration {
	if rd.field("time_limit_s") == "" {
		return 0
	}
	return job.Duration(rd.seconds("time_limit_s", job.MaxTimeLimit))
}

// limit sets the time limit of a job. given is the limit that its source gives.
func (rd *jobReader) limit(j *Job, given job.Duration) {
	if given > 0 && given.D() < j.Runs {
		rd.fail("duration_s", "longer than the job's time limit of %s, so it could not do its work", given)
	}
	j.Spec.TimeLimit = given
	if rd.o.Known {
		j.Spec.TimeLimit = rd.o.known(j)
	}
}

// limitSlack is by how much a known time limit is longer than an attempt may take: the members of a gang do not start at
// the same moment.
const limitSlack = time.Second

// known returns the time limit of a job whose duration is known. An attempt of a preemptible job takes at most the
// whole work, plus a restart.
func (o *Options) known(j *Job) job.Duration {
	limit := j.Runs
	if j.Spec.Preemptible && o.Restart > 0 {
		limit += o.Restart + limitSlack
	}
	return job.Duration(min(limit, job.MaxTimeLimit))
}

// split makes a gang of a job with this number of nodes, or of a job that is wider than any machine.
func (rd *jobReader) split(j *Job, nodes int) {
	need := &j.Spec.Resources
	asked := need.GPUs
	switch {
	case nodes > 1 && need.GPUShare > 0:
		rd.fail("nodes", "a gang of parts of GPUs; ask for whole ones")
		return
	case nodes > 0 && asked%nodes != 0:
		rd.fail("num_gpu", "it does not divide by %d nodes", nodes)
		return
	case nodes == 0:
		nodes = rd.cluster.nodes(*need)
	}
	if nodes > job.MaxNodes {
		rd.fail("num_gpu", "it needs %d machines; at most %d", nodes, job.MaxNodes)
		return
	}
	j.gang(nodes)
	if held := need.GPUs * nodes; nodes > 1 && held > asked {
		if rd.rounded++; rd.rounded == 1 {
			rd.wide = fmt.Sprintf("%s in line %d: %d GPUs on %d nodes, and not %d", j.Name, rd.line, held, nodes, asked)
		}
	}
}

// gang splits what the job asks for evenly over this number of nodes, rounded up.
func (j *Job) gang(nodes int) {
	if nodes <= 1 {
		return
	}
	j.Spec.Nodes = nodes
	need := &j.Spec.Resources
	need.GPUs, need.CPUs, need.Memory = over(need.GPUs, nodes), over(need.CPUs, nodes), job.Size(over(int(need.Memory), nodes))
}

// over divides, and rounds up.
func over(a, b int) int { return (a + b - 1) / b }

// check refuses a job that the cluster could never run.
func (rd *jobReader) check(s job.Spec) {
	lacks, have := rd.cluster.lacks(s)
	if lacks == "" {
		return
	}
	column := lackColumns[lacks]
	if !rd.has(column) {
		column = "file"
	}
	rd.fail(column, "the cluster could never run it: %s", unmet(s, lacks, have))
}
