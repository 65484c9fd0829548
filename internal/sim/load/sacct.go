package load

// Converting what sacct of Slurm prints into jobs. Unlike tables it is read leniently, line by line, because accounting has
// what no reader foresees. What cannot be a job is counted by reason, with an example.

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/job"
)

// SacctUse is a command whose output FromSacct reads.
const SacctUse = "sacct --allusers --parsable2 --starttime 2026-01-01 --format JobID,User,Account,Partition,Submit,Eligible,Start,End,ElapsedRaw,TimelimitRaw,ReqTRES,AllocTRES,NNodes,NCPUS,ReqMem,State,Priority"

// SacctOptions say how accounting becomes jobs.
type SacctOptions struct {
	// AnyModel lets a job use GPUs of every model. Otherwise it needs the model that it asked Slurm for by name.
	AnyModel bool
	// Priorities maps Slurm's priorities to those of the jobs, from 0 for the lowest to 100 for the highest. Otherwise
	// all jobs have the default priority, because Slurm's priorities include the age of a job and the shares of its
	// user.
	Priorities bool
}

// sacctColumns are the columns of sacct that are read. Others are ignored, and a note names them.
var sacctColumns = []string{
	"jobid", "user", "account", "partition", "submit", "eligible", "start", "end", "elapsed", "elapsedraw", "timelimit", "timelimitraw",
	"reqtres", "alloctres", "reqgres", "nnodes", "reqnodes", "allocnodes", "ncpus", "reqcpus", "alloccpus", "reqmem", "state", "priority",
}

// FromSacct reads the output of sacct with --parsable2 (or --parsable): fields between |, and a header. Name is what
// errors call it. It needs the columns JobID, Submit, ElapsedRaw or Elapsed (or Start and End), and AllocTRES, ReqTRES or
// NCPUS; see SacctUse for all that it knows. Each job that ran becomes one job, and so does each task of a Slurm array:
//
//   - The name is Slurm's id, the user the User, the project the Account, the class the Partition.
//   - It is submitted when it became eligible, so that a wait for dependencies does not count; if that is not known,
//     when it was submitted. The first job is submitted at 0.
//   - It runs as long as it ran, however it ended. TimelimitRaw or Timelimit is its time limit.
//   - It asks for what it held by AllocTRES; without that, for what ReqTRES says, or NCPUS, ReqMem and ReqGRES. A job
//     of several nodes is a gang if its GPUs divide by the nodes.
//
// A line of a step, such as 123.batch, belongs to its job and is not counted. A job that did not run, is still running,
// or cannot be a job of muster is left out. The report, one line each, says how many jobs there are, what was left out
// and why, and what was changed. An error is about the file as a whole: it is not the output of sacct, or has no job
// that ran.
func FromSacct(name string, r io.Reader, o SacctOptions) (jobs []Job, report []string, err error) {
	s := &sacct{name: name, o: o, at: map[string]int{}, left: map[string]*tally{}, changed: map[string]*tally{}, ids: map[string]int{}, texts: map[string]string{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxRow)
	for lines.Scan() {
		s.line++
		text := strings.TrimSpace(strings.TrimPrefix(strings.ToValidUTF8(lines.Text(), "?"), "\ufeff"))
		switch {
		case text == "":
		case s.columns == 0:
			if err := s.readHeader(text); err != nil {
				return nil, nil, err
			}
		case len(s.runs) >= MaxJobs:
			return nil, nil, fmt.Errorf("%s:%d: more than %d jobs", name, s.line, MaxJobs)
		default:
			s.readLine(strings.Split(text, "|"))
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, nil, fmt.Errorf("%s:%d: a line of more than %s", name, s.line+1, job.Size(maxRow))
	} else if err != nil {
		return nil, nil, fmt.Errorf("%s: after line %d: %w", name, s.line, err)
	}
	if s.columns == 0 {
		return nil, nil, fmt.Errorf("%s: it is empty; write it with: %s", name, SacctUse)
	}
	jobs = s.jobs()
	if len(jobs) == 0 {
		return nil, nil, fmt.Errorf("%s: it has no job that ran%s", name, s.leftOut())
	}
	return jobs, s.report(jobs), nil
}

// sacct is the state of reading accounting.
type sacct struct {
	name    string
	o       SacctOptions
	line    int
	columns int
	at      map[string]int // the index of each column's field
	fields  []string
	unused  []string // columns

	runs    []run
	ids     map[string]int // index in runs
	steps   int
	left    map[string]*tally // jobs that are left out, by reason
	changed map[string]*tally // jobs that differ from the accounting, by what was changed
	texts   map[string]string
}

// run is a job that ran.
type run struct {
	at       time.Time // eligible or submitted
	priority float64   // Slurm's
	job      Job
}

// tally counts jobs, and gives one of them as an example.
type tally struct {
	n    int
	line int
	id   string
}

// maxReasons bounds the reasons that are counted separately, because some contain words of the file.
const maxReasons = 100

func (s *sacct) count(in map[string]*tally, why string) {
	if in[why] == nil && len(in) >= maxReasons {
		why = "others"
	}
	t := in[why]
	if t == nil {
		t = &tally{line: s.line, id: strings.Clone(s.field("jobid"))}
		in[why] = t
	}
	t.n++
}

func (s *sacct) readHeader(text string) error {
	names := strings.Split(strings.TrimSuffix(text, "|"), "|")
	for i, n := range names {
		c := strings.ToLower(strings.TrimSpace(n))
		switch _, twice := s.at[c]; {
		case twice:
			return fmt.Errorf("%s:%d: the column %.40q is there twice", s.name, s.line, n)
		case !slices.Contains(sacctColumns, c):
			s.unused = append(s.unused, strings.Trim(fmt.Sprintf("%.40q", n), `"`))
		default:
			s.at[c] = i
		}
	}
	s.columns = len(names)
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { _, there := s.at[n]; return there })
	}
	missing := ""
	switch {
	case !has("jobid"):
		missing = "JobID"
	case !has("submit"):
		missing = "Submit"
	case !has("elapsed", "elapsedraw") && (!has("start") || !has("end")):
		missing = "ElapsedRaw"
	case !has("alloctres", "reqtres", "ncpus", "alloccpus", "reqcpus"):
		missing = "AllocTRES"
	}
	if missing != "" {
		return fmt.Errorf("%s:%d: the column %q is missing; write the file with: %s", s.name, s.line, missing, SacctUse)
	}
	return nil
}

// field returns a field of the present line; empty if there is no such column, or no value in it.
func (s *sacct) field(column string) string {
	i, there := s.at[column]
	if !there || i >= len(s.fields) {
		return ""
	}
	switch text := strings.TrimSpace(s.fields[i]); text {
	case "Unknown", "None", "None assigned", "N/A", "(null)":
		return ""
	default:
		return text
	}
}

// first returns the first of these columns that has a value.
func (s *sacct) first(columns ...string) string {
	for _, c := range columns {
		if text := s.field(c); text != "" {
			return text
		}
	}
	return ""
}

// readLine reads a job, or leaves it out.
func (s *sacct) readLine(fields []string) {
	if len(fields) == s.columns+1 && fields[s.columns] == "" {
		fields = fields[:s.columns] // --parsable ends each line with |
	}
	s.fields = fields
	if len(fields) != s.columns {
		s.count(s.left, fmt.Sprintf("lines that do not have %d fields; is there a | in a name?", s.columns))
		return
	}
	id := s.field("jobid")
	if strings.Contains(id, ".") {
		s.steps++
		return
	}
	x, why := s.run(id)
	if why != "" {
		s.count(s.left, why)
		return
	}
	if i, twice := s.ids[id]; twice { // sacct --duplicates prints each run of a job that was requeued
		s.count(s.left, "earlier runs of a job that was requeued")
		s.runs[i] = x
		return
	}
	s.ids[id] = len(s.runs)
	s.runs = append(s.runs, x)
}

// run reads a job that ran, or returns why it is left out.
func (s *sacct) run(id string) (x run, why string) {
	state, _, _ := strings.Cut(s.text("state"), " ") // CANCELLED by 1000
	elapsed, isTime := s.elapsed()
	switch {
	case id == "" || len(id) > maxText || !isPrintable(id):
		return x, "lines without an id"
	case slices.Contains([]string{"RUNNING", "R", "SUSPENDED", "S", "REQUEUED", "RQ", "RESIZING"}, strings.TrimSuffix(state, "+")):
		return x, "jobs that had not ended (" + state + ")"
	case !isTime:
		return x, "jobs without the time that they ran"
	case elapsed == 0 || s.has("start") && s.field("start") == "":
		return x, "jobs that did not run (" + cmp.Or(state, "no state") + ")"
	case elapsed > maxRuns:
		return x, fmt.Sprintf("jobs that ran longer than %.0f days", maxRuns.Hours()/24)
	}
	var known bool
	if x.at, known = sacctTime(s.field("eligible")); !known {
		if x.at, known = sacctTime(s.field("submit")); !known {
			return x, "jobs without a time of submission"
		}
	}
	x.job = Job{Name: strings.Clone(id), User: s.text("user"), Class: s.text("partition"), Runs: elapsed, Spec: job.DefaultSpec()}
	spec := &x.job.Spec
	spec.Name, spec.Command, spec.Project = x.job.Name, command, s.text("account")
	if job.CheckProject(spec.Project) != nil {
		s.count(s.changed, "jobs have no project, because the account is no name of one")
		spec.Project = ""
	}
	if why := s.setNeed(&x.job); why != "" {
		return x, why
	}
	s.setLimit(&x.job)
	if p, err := parseNumber(s.field("priority")); err == nil {
		x.priority = p
	}
	return x, ""
}

func (s *sacct) has(column string) bool {
	_, there := s.at[column]
	return there
}

// text returns a short field that is printable.
func (s *sacct) text(column string) string {
	text := s.field(column)
	if len(text) > maxText || !isPrintable(text) {
		return ""
	}
	kept, there := s.texts[text]
	if !there {
		kept = strings.Clone(text)
		if len(s.texts) < maxKept {
			s.texts[kept] = kept
		}
	}
	return kept
}

// jobs returns the jobs in the order of their submission.
func (s *sacct) jobs() []Job {
	slices.SortStableFunc(s.runs, func(a, b run) int { return a.at.Compare(b.at) })
	var jobs []Job
	low, high := 0.0, 0.0
	for i, x := range s.runs {
		if i == 0 {
			low, high = x.priority, x.priority
		}
		low, high = min(low, x.priority), max(high, x.priority)
	}
	for _, x := range s.runs {
		j := x.job
		j.Submit = x.at.Sub(s.runs[0].at)
		if j.Submit > maxTime {
			s.count(s.left, fmt.Sprintf("jobs that were submitted more than %.0f days after the first", maxTime.Hours()/24))
			continue
		}
		if s.o.Priorities && high > low {
			j.Spec.Priority = int((x.priority - low) / (high - low) * job.MaxPriority)
		}
		jobs = append(jobs, j)
	}
	return jobs
}
