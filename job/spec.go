package job

// Spec: what a job asks for, and its validation.

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// ErrNotYet means that this version does not support something that the documented interface has. Remove it from the
// request.
var ErrNotYet = errors.New("not yet in this version")

// Spec is one job as a user wrote it. Its JSON form is the job file.
type Spec struct {
	Name string `json:"name,omitempty"`
	// program and arguments; with an image, arguments of its entry point
	Command []string `json:"command,omitempty"`
	// instead of Command; run by its #! line, or by /bin/sh
	Script string            `json:"script,omitempty"`
	Args   []string          `json:"args,omitempty"` // of Script
	Params map[string]string `json:"params,omitempty"`
	Image  string            `json:"image,omitempty"`
	Env    map[string]string `json:"env,omitempty"`
	// absolute, on the worker or in the image; default: the scratch directory or the image's own
	Workdir string `json:"workdir,omitempty"`
	// absolute; the working directory on workers that have it, if Workdir is empty, as in Slurm
	SubmitDir string    `json:"submit_dir,omitempty"`
	Resources Resources `json:"resources"`
	Nodes     int       `json:"nodes,omitempty"`
	// a gang: how many processes its program starts on each node, for host files; 0: one
	TasksPerNode int `json:"ntasks_per_node,omitempty"`
	// the other members of a gang go on if one of them fails
	KeepOnBadExit bool   `json:"keep_on_bad_exit,omitempty"`
	Array         string `json:"array,omitempty"` // see ParseArray
	// one task for each line, which is its MUSTER_ENTRY
	EachLine  []string `json:"each_line,omitempty"`
	TimeLimit Duration `json:"time_limit,omitempty"` // 0: none
	// TimeLimit is the setting default-time of the daemon that accepted the job
	DefaultTime bool       `json:"default_time,omitempty"`
	Begin       *time.Time `json:"begin,omitempty"` // not before, by the wall clock
	// between SIGTERM and SIGKILL; 0: the worker's default
	Grace       Duration `json:"grace,omitempty"`
	Priority    int      `json:"priority"` // 0 to 100
	Preemptible bool     `json:"preemptible,omitempty"`
	Retries     int      `json:"retries,omitempty"`  // further runs after a failed one
	RetryOn     []int    `json:"retry_on,omitempty"` // only after these exit codes; empty: after any
	Requeue     bool     `json:"requeue"`            // run again if the worker is lost
	// what a task does when it is cut off from its owner; WithPartition sets the default
	Partition string `json:"partition,omitempty"`
	// how long a fenced task runs on without contact with its owner; 0: the default
	Lease      Duration `json:"lease,omitempty"`
	Dependency []string `json:"dependency,omitempty"` // see ParseDependencies
	// a job whose dependencies can never be met is cancelled
	KillOnInvalidDep bool   `json:"kill_on_invalid_dep,omitempty"`
	Exclusive        bool   `json:"exclusive,omitempty"` // each task has its host for itself
	Project          string `json:"project,omitempty"`   // to which the usage counts, besides the user
	Constraint       string `json:"constraint,omitempty"`
	Prefer           string `json:"prefer,omitempty"` // see ParsePrefer
	// Constraint and Prefer match only labels that an inviter has signed for the host
	TrustedLabels bool     `json:"trusted_labels,omitempty"`
	NodeList      []string `json:"nodelist,omitempty"`
	Exclude       []string `json:"exclude,omitempty"`
	Policy        string   `json:"policy,omitempty"`
	// paths on the submitting host; the client uploads them and sets Tree instead
	Upload []string `json:"upload,omitempty"`
	// hash of the uploaded files, which become each task's working directory: 64 hexadecimal digits
	Tree     string   `json:"tree,omitempty"`
	Download []string `json:"download,omitempty"` // globs, relative to the working directory
	Mounts   []string `json:"mounts,omitempty"`
	// a file on the worker, a pattern for Names.Expand; also takes stderr if Error is empty
	Output string `json:"output,omitempty"`
	Error  string `json:"error,omitempty"`
	// the signal to send before the time limit, and how long before it: "USR1@120s"
	Signal string `json:"signal,omitempty"`
	Hold   bool   `json:"hold,omitempty"`
	// all users may read the output of its tasks
	ShareOutput bool `json:"share_output,omitempty"`
	// tasks get input from a client, by a pipe or by a terminal of this size, such as 24x80; see TakesInput
	Stdin bool   `json:"stdin,omitempty"`
	TTY   string `json:"tty,omitempty"`
	// a task that exits with this code has saved its state and runs again; 0: none
	CheckpointExitCode int `json:"checkpoint_exit_code,omitempty"`
	// the job is cancelled once this number of its tasks have failed for good; 0: never
	MaxFailures int `json:"max_failures,omitempty"`
	// tasks also have the variables of SlurmEnv
	SlurmEnv bool `json:"slurm_env,omitempty"`
}

// Resources is what one task holds while it runs.
type Resources struct {
	CPUs      int     `json:"cpus"`
	Memory    Size    `json:"memory,omitempty"`     // 0: not accounted for
	GPUs      int     `json:"gpus,omitempty"`       // whole devices
	GPUModel  string  `json:"gpu_model,omitempty"`  // or several models: "A100|H100"
	GPUMemory Size    `json:"gpu_memory,omitempty"` // minimum for each device
	GPUShare  float64 `json:"gpu_share,omitempty"`  // of one device, above 0 and below 1; not together with GPUs
	Exclusive bool    `json:"-"`                    // the whole host; see Spec.Need
}

// Need returns what one task needs of its host: Resources, with Exclusive set from the job's own field.
func (s Spec) Need() Resources {
	need := s.Resources
	need.Exclusive = s.Exclusive
	return need
}

// ModelOr joins the models of Resources.GPUModel if there are several. A device of any of them will do.
const ModelOr = "|"

// Bounds of a spec. Every daemon checks them on every spec that it receives.
const (
	MaxSpecBytes    = 1 << 20 // a job file
	MaxName         = 128     // characters of a job's name
	MaxArgs         = 4096    // words of a command
	MaxEnv          = 1024    // variables
	MaxPriority     = 100
	MaxRetries      = 1000
	MaxCPUs         = 1 << 24 // simulations count thousandths of a CPU
	MaxGPUs         = 1024
	MaxNodes        = 512 // of a gang: each member is told of all others
	MinLease        = 30 * time.Second
	MaxLease        = 24 * time.Hour
	DefaultLease    = 300 * time.Second
	DefaultGrace    = 10 * time.Second
	MaxGrace        = time.Hour
	MaxTimeLimit    = 366 * 24 * time.Hour
	MaxBegin        = 366 * 24 * time.Hour // from the submission
	defaultCPUs     = 1
	defaultPriority = 50
)

// DefaultSpec returns the spec to which a user's fields are added.
func DefaultSpec() Spec {
	return Spec{Priority: defaultPriority, Requeue: true, Resources: Resources{CPUs: defaultCPUs}}
}

var envName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
})

// Validate returns an error that names the first field that is not valid.
func (s Spec) Validate() error {
	for _, check := range []func(Spec) error{checkCommand, checkImage, checkText, checkNumbers, checkResources, checkSignal, checkRetries, checkGang, checkArray, checkFiles, checkOutput, checkHosts, checkDependency, checkProject, checkInput} {
		if err := check(s); err != nil {
			return err
		}
	}
	return nil
}

// ValidateFields is like Validate for a job that is not submitted yet, but checks only fields whose meaning does not
// depend on other fields.
func (s Spec) ValidateFields() error {
	for _, check := range []func(Spec) error{checkText, checkNumbers, checkHosts, checkProject} {
		if err := check(s); err != nil {
			return err
		}
	}
	_, err := ParseDependencies(s.Dependency, true)
	return err
}

// checkHosts checks what the job asks of its hosts.
func checkHosts(s Spec) error {
	if _, err := ParseConstraint(s.Constraint); err != nil {
		return err
	}
	if _, err := ParsePrefer(s.Prefer); err != nil {
		return err
	}
	if _, err := ParseNodes(s.NodeList); err != nil {
		return fmt.Errorf("nodelist: %w", err)
	}
	if _, err := ParseNodes(s.Exclude); err != nil {
		return fmt.Errorf("exclude: %w", err)
	}
	return nil
}

func checkCommand(s Spec) error {
	switch {
	case len(s.Command) == 0 && s.Script == "" && s.Image == "":
		return errors.New("command: a job needs a command or a script")
	case len(s.Command) > 0 && s.Script != "":
		return errors.New("command: give a command or a script, not both")
	case len(s.Args) > 0 && s.Script == "":
		return errors.New("args: they are of a script; arguments of a command are part of it")
	case len(s.Command) > MaxArgs:
		return fmt.Errorf("command: %d words; at most %d", len(s.Command), MaxArgs)
	case len(s.Args) > MaxArgs:
		return fmt.Errorf("args: %d words; at most %d", len(s.Args), MaxArgs)
	case len(s.Command) > 0 && s.Command[0] == "":
		return errors.New("command: the program's name is empty")
	}
	for _, w := range s.Command {
		if strings.ContainsRune(w, 0) {
			return errors.New("command: an argument contains a zero byte")
		}
	}
	for _, w := range s.Args {
		if strings.ContainsRune(w, 0) {
			return errors.New("args: an argument contains a zero byte")
		}
	}
	return nil
}

// CheckVariable returns an error if a variable of a task, or a parameter, cannot have this name or value.
func CheckVariable(name, value string) error {
	if !envName().MatchString(name) || strings.ContainsRune(value, 0) {
		return fmt.Errorf("%.60q: a name is letters, digits and _, a value has no zero byte", name)
	}
	return nil
}

func checkText(s Spec) error {
	if utf8.RuneCountInString(s.Name) > MaxName {
		return fmt.Errorf("name: %d characters; at most %d", utf8.RuneCountInString(s.Name), MaxName)
	}
	if !printable(s.Name) {
		return fmt.Errorf("name %.60q: only printable characters", s.Name)
	}
	if len(s.Env)+len(s.Params) > MaxEnv {
		return fmt.Errorf("env: %d variables; at most %d", len(s.Env)+len(s.Params), MaxEnv)
	}
	for k, v := range s.Env {
		if err := CheckVariable(k, v); err != nil {
			return fmt.Errorf("env %w", err)
		}
	}
	for k, v := range s.Params {
		if err := CheckVariable(k, v); err != nil {
			return fmt.Errorf("params %w", err)
		}
	}
	if len(s.Policy) > MaxName || !printable(s.Policy) {
		return fmt.Errorf("policy %.60q: not a name", s.Policy)
	}
	for _, d := range []struct{ field, path string }{{"workdir", s.Workdir}, {"submit_dir", s.SubmitDir}} {
		if d.path != "" && (!strings.HasPrefix(d.path, "/") || strings.ContainsRune(d.path, 0)) {
			return fmt.Errorf("%s %.60q: want an absolute path on the node that runs the task", d.field, d.path)
		}
	}
	return nil
}

// printable reports whether s is valid UTF-8 without control characters.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

func checkNumbers(s Spec) error {
	switch {
	case s.Priority < 0 || s.Priority > MaxPriority:
		return fmt.Errorf("priority %d: want 0 to %d", s.Priority, MaxPriority)
	case s.Retries < 0 || s.Retries > MaxRetries:
		return fmt.Errorf("retries %d: want 0 to %d", s.Retries, MaxRetries)
	case s.TimeLimit < 0 || s.TimeLimit.D() > MaxTimeLimit:
		return fmt.Errorf("time_limit %s: want 0s to %s", s.TimeLimit, Duration(MaxTimeLimit))
	case s.Grace < 0 || s.Grace.D() > MaxGrace:
		return fmt.Errorf("grace %s: want 0s to %s", s.Grace, Duration(MaxGrace))
	case s.Lease != 0 && (s.Lease.D() < MinLease || s.Lease.D() > MaxLease):
		return fmt.Errorf("lease %s: want %s to %s", s.Lease, Duration(MinLease), Duration(MaxLease))
	case s.Partition != "" && s.Partition != PartitionFence && s.Partition != PartitionHold:
		return fmt.Errorf("partition %.20q: want hold or fence", s.Partition)
	}
	return nil
}

func checkResources(s Spec) error {
	r := s.Resources
	switch {
	case r.CPUs < 0 || r.CPUs > MaxCPUs:
		return fmt.Errorf("resources.cpus %d: want 0 to %d", r.CPUs, MaxCPUs)
	case r.Memory < 0:
		return fmt.Errorf("resources.memory %s: must be at least 0", r.Memory)
	case r.GPUs < 0 || r.GPUs > MaxGPUs:
		return fmt.Errorf("resources.gpus %d: want 0 to %d", r.GPUs, MaxGPUs)
	case r.GPUMemory < 0:
		return fmt.Errorf("resources.gpu_memory %s: must be at least 0", r.GPUMemory)
	case !(r.GPUShare >= 0 && r.GPUShare < 1):
		return fmt.Errorf("resources.gpu_share %v: want at least 0 and below 1; use gpus for whole devices", r.GPUShare)
	case r.GPUShare > 0 && r.GPUs > 0:
		return errors.New("resources.gpu_share: a share of one device or whole gpus; give one of the two")
	case (r.GPUModel != "" || r.GPUMemory > 0) && r.GPUs == 0 && r.GPUShare == 0:
		return errors.New("resources.gpu_model: set, but gpus is 0")
	case !printable(r.GPUModel) || len(r.GPUModel) > MaxName:
		return fmt.Errorf("resources.gpu_model %.60q: not a model name", r.GPUModel)
	case r.GPUModel != "" && slices.ContainsFunc(strings.Split(r.GPUModel, ModelOr), isBlank):
		return fmt.Errorf("resources.gpu_model %.60q: a name is empty; several models are written A100%sH100", r.GPUModel, ModelOr)
	}
	return nil
}

func isBlank(s string) bool { return strings.TrimSpace(s) == "" }

// checkGang checks the number of nodes, and the number of processes on each node. Layout checks the total number of
// tasks.
func checkGang(s Spec) error {
	switch {
	case s.Nodes < 0 || s.Nodes > MaxNodes:
		return fmt.Errorf("nodes %d: want 1 to %d", s.Nodes, MaxNodes)
	case s.TasksPerNode < 0 || s.TasksPerNode > MaxCPUs:
		return fmt.Errorf("ntasks_per_node %d: want 1 to %d", s.TasksPerNode, MaxCPUs)
	}
	return nil
}

// The values of Spec.Partition. A job without one was accepted by an older version, and is fenced.
const (
	// PartitionHold: the worker never ends a task for lack of contact, and the owner never gives up a task because its
	// host is silent.
	PartitionHold = "hold"
	// PartitionFence: the worker ends a task that had no contact for the length of its lease, and the owner then runs
	// the task again.
	PartitionFence = "fence"
)

// Holds reports whether the job's tasks go on when their hosts and the owner have no contact.
func (s Spec) Holds() bool { return s.Partition == PartitionHold }

// MinMemory is the least memory with which a process can be started and do something.
const MinMemory Size = 1 << 20

// CheckMemory returns an error if a draft asks for so little memory that no process starts. Validate does not call it,
// for the same reason as CheckPartition.
func (s Spec) CheckMemory() error {
	if m := s.Resources.Memory; m > 0 && m < MinMemory {
		return fmt.Errorf("resources.memory %s: no process starts with less than %s", m, MinMemory)
	}
	return nil
}

// CheckPartition returns an error if a draft asks for a lease and for tasks that have none. Validate does not call it,
// because older versions have accepted such jobs.
func (s Spec) CheckPartition() error {
	if s.Lease != 0 && s.Holds() {
		return fmt.Errorf("lease %s: with partition hold no lease ends a task: leave it out, or say partition fence", s.Lease)
	}
	return nil
}

// WithPartition returns the spec with Partition filled in if it is empty. The default is to hold. A job that names a
// lease is fenced, because a lease has no other meaning.
func (s Spec) WithPartition() Spec {
	switch {
	case s.Partition != "":
	case s.Lease != 0:
		s.Partition = PartitionFence
	default:
		s.Partition = PartitionHold
	}
	return s
}

// LeaseOr returns the job's lease, or the default.
func (s Spec) LeaseOr() time.Duration {
	if s.Lease == 0 {
		return DefaultLease
	}
	return s.Lease.D()
}

// GraceOr returns the job's time between SIGTERM and SIGKILL, or the default.
func (s Spec) GraceOr() time.Duration {
	if s.Grace == 0 {
		return DefaultGrace
	}
	return s.Grace.D()
}

// Argv returns the command, or the arguments of the script, with each {name} of a param replaced by its value.
func (s Spec) Argv() []string {
	words := s.Command
	if s.Script != "" {
		words = s.Args
	}
	if len(s.Params) == 0 {
		return words
	}
	var pairs []string
	for k, v := range s.Params {
		pairs = append(pairs, "{"+k+"}", v)
	}
	replace := strings.NewReplacer(pairs...)
	argv := make([]string, len(words))
	for i, w := range words {
		argv[i] = replace.Replace(w)
	}
	return argv
}
