package main

// Options of sbatch whose meaning depends on other options: nodes and processes, memory and CPUs of each, and output
// files.

import (
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/musterhq/muster/job"
)

// slurmLate holds such options of a script.
type slurmLate struct {
	nodes                bool // the script says how many
	processes, perNode   int  // that srun or mpirun is to start, and how many of them on each node; 0: not told
	memPerCPU, memPerGPU job.Size
	cpusPerGPU           int
	output, stderr       string // as sbatch writes them
	mailed               bool   // the warning was printed
	any                  bool   // the script has options of sbatch
	gang                 bool   // the number of nodes was given with an option of muster
	usual                bool   // the output goes to sbatch's default file
	noEnv                bool   // the task gets no variables of Slurm
}

// setting gives the task the environment of a task of Slurm: its directory and its variables.
func (l *slurmLate) setting(s *job.Spec) (err error) {
	s.SlurmEnv = (s.SlurmEnv || l.any) && !l.noEnv
	if !l.any && !l.usual || s.Workdir != "" && s.Image == "" || len(s.Upload) > 0 || len(s.Download) > 0 {
		return nil
	}
	if s.SubmitDir, err = os.Getwd(); err != nil {
		return fmt.Errorf("the directory of the submit: %w", err)
	}
	return nil
}

// slurmNodes accepts a number, or the least and the highest number of nodes.
func slurmNodes(l *lateOptions, s *job.Spec, v string) error {
	l.slurm.nodes = true
	least, most, two := strings.Cut(v, "-")
	if err := slurmCount(least, &s.Nodes); err != nil {
		return err
	}
	highest := s.Nodes
	if two {
		if err := slurmCount(most, &highest); err != nil {
			return err
		}
	}
	switch {
	case highest < s.Nodes:
		return fmt.Errorf("%.20q: the range ends before it begins", v)
	case highest > s.Nodes:
		return slurmWarning(fmt.Sprintf("%d-%d: the job gets %d %s, not more", s.Nodes, highest, s.Nodes, plural(s.Nodes, "node", "nodes")))
	}
	return nil
}

func slurmCount(v string, into *int) error {
	n := 0
	if err := number(v, &n); err != nil {
		return err
	}
	if n < 1 || n > job.MaxTasks {
		return fmt.Errorf("%.20q: want 1 to %d", v, job.MaxTasks)
	}
	*into = n
	return nil
}

// place computes the nodes of the job, and the processes on each.
func (l *slurmLate) place(given func(flag string) bool, s *job.Spec) (warning string, err error) {
	total, each := l.processes, l.perNode
	if given("ntasks-per-node") || total == 0 && each == 0 {
		total, each = 0, s.TasksPerNode
	}
	switch nodes := s.Nodes; {
	case total == 0:
	case nodes > 0 && total%nodes != 0:
		return "", fmt.Errorf("--ntasks %d is not a multiple of --nodes %d: each node runs as many", total, nodes)
	case nodes > 0 && each > 0 && total/nodes > each:
		return "", fmt.Errorf("--ntasks %d is more than --nodes %d with --ntasks-per-node %d", total, nodes, each)
	case nodes > 0:
		each = total / nodes
	case each > 0 && total%each != 0:
		return "", fmt.Errorf("--ntasks %d is not a multiple of --ntasks-per-node %d: each node runs as many", total, each)
	case each > 0:
		s.Nodes = total / each
	default:
		if each = total; total > 1 {
			warning = fmt.Sprintf("#SBATCH --ntasks: without --nodes all %d tasks are on one node", total)
		}
	}
	if s.TasksPerNode = each; each <= 1 {
		s.TasksPerNode = 0
	}
	if s.Nodes > 1 && (l.nodes || l.processes > 0) && !l.gang {
		return "", fmt.Errorf("#SBATCH --nodes %d: Slurm runs the script on the first node only, muster on each, where MUSTER_NODE_RANK tells it apart; if the script is made for that, add --nodes %d to the command or `#MUSTER --nodes=%d` to the script", s.Nodes, s.Nodes, s.Nodes)
	}
	return warning, nil
}

// resources computes the CPUs and the memory of each node, which has this number of processes. What the script asks for
// each process is multiplied if it says how many there are.
func (l *slurmLate) resources(given func(flag string) bool, r *job.Resources, processes int) error {
	if l.cpusPerGPU < 0 || l.cpusPerGPU > job.MaxCPUs || r.GPUs < 0 || r.GPUs > job.MaxGPUs || r.CPUs > job.MaxCPUs || processes > job.MaxCPUs {
		return fmt.Errorf("cpus-per-gpu %d, %d gpus, %d processes of %d cpus: out of range", l.cpusPerGPU, r.GPUs, processes, r.CPUs)
	}
	switch {
	case given("cpus"):
	case l.cpusPerGPU > 0:
		r.CPUs = l.cpusPerGPU * r.GPUs
	case processes > 1 && (l.processes > 0 || l.perNode > 0):
		r.CPUs *= processes
	}
	each, n := l.memPerCPU, r.CPUs
	if each == 0 {
		each, n = l.memPerGPU, r.GPUs
	}
	switch {
	case each == 0 || given("mem"):
	case n < 0 || n > 0 && each > math.MaxInt64/job.Size(n):
		return fmt.Errorf("%d times %s memory: out of range", n, each)
	default:
		r.Memory = each * job.Size(n)
	}
	return nil
}

// files takes the output files, except for those that a flag of the command line overrides.
func (l *slurmLate) files(given func(flag string) bool, s *job.Spec) (warning string, err error) {
	var relative []string
	if l.usual && l.output == "" && s.Output == "" {
		l.output = "slurm-%j.out"
	}
	for _, f := range []struct {
		flag, pattern string
		into          *string
	}{{"output", l.output, &s.Output}, {"error", l.stderr, &s.Error}} {
		pattern, err := slurmPattern(f.pattern, s.Nodes > 1)
		switch {
		case err != nil:
			return "", err
		case pattern == "" || given(f.flag):
		case !strings.HasPrefix(pattern, "/") && s.SubmitDir == "" && (s.Workdir == "" || s.Image != ""):
			relative = append(relative, dashed(f.flag))
		default:
			*f.into = ofArray(pattern, *s)
		}
	}
	if len(relative) == 0 {
		return "", nil
	}
	return fmt.Sprintf("#SBATCH %s: with --upload or --download a relative path needs --chdir; it is ignored, and `muster logs` prints the output", strings.Join(relative, " and ")), nil
}

// ofArray adapts the pattern to an array: in Slurm each of its tasks has a job ID of its own, but not here.
func ofArray(pattern string, s job.Spec) string {
	if s.Array == "" && len(s.EachLine) == 0 {
		return pattern
	}
	return strings.NewReplacer("%%", "%%", "%j", "%A_%a").Replace(pattern)
}

// slurmOutput keeps a pattern that can be translated.
func slurmOutput(into *string, v string) error {
	if v == "/dev/null" {
		*into = ""
		return nil
	}
	_, err := slurmPattern(v, false)
	*into = v
	return err
}

// slurmPattern translates a pattern for a file name. Slurm's batch script is task 0 on node 0; here the script of a gang
// runs on each node.
func slurmPattern(v string, gang bool) (string, error) {
	first := "0"
	if gang {
		first = "%t"
	}
	var out strings.Builder
	for rest := v; ; {
		before, after, found := strings.Cut(rest, "%")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		letters := strings.TrimLeft(after, "0123456789")
		width := after[:len(after)-len(letters)]
		if letters == "" {
			return "", fmt.Errorf("%.60q: a %% without a letter", v)
		}
		switch letters[0] {
		case 'a':
			out.WriteString("%" + width + "a")
		case 'j', 'A', 'x', 'u', 'N', '%':
			out.WriteString("%" + letters[:1])
		case 'J':
			out.WriteString("%j")
		case 'n', 't':
			out.WriteString(first)
		case 's':
			out.WriteString("batch")
		default:
			return "", fmt.Errorf("%.60q: %%%.1s: %w", v, letters, job.ErrNotYet)
		}
		rest = letters[1:]
	}
}

// mail warns of the first option about mail.
func (l *slurmLate) mail() error {
	if l.mailed {
		return nil
	}
	l.mailed = true
	return slurmWarning("no mail is sent; all options about mail are ignored")
}
