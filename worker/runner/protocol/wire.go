// Package protocol defines what a daemon and a runner exchange: the messages on their sockets and the files in their
// directory (Dir).
//
// A frame is four bytes of length, big-endian, and one JSON object of at most maxFrame bytes. The runner opens with a
// Welcome, which names every attempt that it has. From then on the daemon sends Requests. The runner only reports
// what becomes of a task: Started when its process exists, and Ended when no process of it is left and its exit is on
// disk (a Record in the exit journal).
//
// Every Start is idempotent. A report that was lost with its connection is repeated by the next Welcome or found on
// disk. A new field that an older runner would misread needs a new generation of the runner, and a new version of the
// binary starts one anyway.
package protocol

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/output"
)

const (
	// maxFrame bounds one message: a job file in which JSON escapes every byte into six, and an environment.
	maxFrame = 8 << 20
	// plainFrame is the size up to which a message is read into one piece of memory. Most are far smaller.
	plainFrame = 16 << 10
	// maxWords bounds the command and environment of a Start: twice what a spec may hold, because the worker adds
	// variables of its own.
	maxWords = 2 * job.MaxArgs
	// maxClosed bounds the major numbers of device files that are closed to a task. A driver has about five.
	maxClosed = 64
	// maxDevices bounds the devices with a bound of their memory. A task has a share of one.
	maxDevices = 64
	// MaxDuration bounds every duration in a message. No host lives that long, and adding it to a clock does not
	// overflow.
	MaxDuration = 100 * 365 * 24 * time.Hour
	// maxSignal is the highest real-time signal.
	maxSignal = 64
)

// Request is one request of a daemon; exactly one field is set.
type Request struct {
	Start  *Start      `json:"start,omitempty"`
	Stop   *Stop       `json:"stop,omitempty"`
	Signal *Signal     `json:"signal,omitempty"`
	Extend []Extension `json:"extend,omitempty"`
	// Drain tells the runner to exit as soon as it has no task, because a newer runner has taken its place.
	Drain bool `json:"drain,omitempty"`
	// Leave says that the daemon ends. The runner exits as soon as it has no task, unless another daemon connects before.
	Leave bool `json:"leave,omitempty"`
}

// Start asks for a task. If the runner has the attempt already, it reports what it knows of it.
type Start struct {
	Attempt string   `json:"attempt"`
	Command []string `json:"command,omitempty"`
	Script  string   `json:"script,omitempty"`
	Args    []string `json:"args,omitempty"` // of Script
	Workdir string   `json:"workdir,omitempty"`
	// SubmitDir is the task's directory if Workdir is empty and the task's user may enter it on this host. If not, output
	// files with relative paths are not written.
	SubmitDir string   `json:"submit_dir,omitempty"`
	User      string   `json:"user"`
	Env       []string `json:"env"`
	Hostfile  string   `json:"hostfile,omitempty"`
	Files     string   `json:"files,omitempty"` // directory that becomes the scratch directory
	// Spare is an ended attempt whose directory the runner may take for this one, if it is empty. Older runners ignore
	// the field.
	Spare string `json:"spare,omitempty"`
	// Shared are paths of the host that the task sees although it has a /tmp and a /dev/shm of its own. Older runners ignore
	// the field.
	Shared []string `json:"shared,omitempty"`
	// Keeps tells the runner not to remove the scratch directory when the task has ended; the daemon does.
	Keeps    bool          `json:"keeps,omitempty"`
	Deadline time.Duration `json:"deadline"` // of the lease, on CLOCK_BOOTTIME; none with Hold
	// Skew is the wall clock minus CLOCK_BOOTTIME at which Deadline was computed. If the runner has seen the skew
	// jump since, it moves Deadline by the jump. 0: not known, as from older daemons. Older runners ignore the field.
	Skew time.Duration `json:"skew,omitempty"`
	Hold bool          `json:"hold,omitempty"` // the task has no deadline
	Lead time.Duration `json:"lead"`           // how long before the deadline TERM is sent
	// Fenced tells the runner to refuse the task unless it can end the task at its deadline for certain; see Info.Fences.
	Fenced bool          `json:"fenced,omitempty"`
	Limit  time.Duration `json:"limit,omitempty"` // time limit; 0: none
	// Warn is a signal that is sent WarnBefore the time limit; 0: none.
	Warn       int           `json:"warn,omitempty"`
	WarnBefore time.Duration `json:"warn_before,omitempty"`
	Limits     Limits        `json:"limits"`
	Grace      time.Duration `json:"grace"`
	// Input is nil for a task that gets no input from a client.
	Input *Input `json:"input,omitempty"`
	// Container is nil for a process.
	Container *Container `json:"container,omitempty"`
	// OutputLimit bounds the task's log, in bytes on disk.
	OutputLimit job.Size `json:"output_limit"`
	// Stdout and Stderr are files that get copies of the output. Their paths are relative to Workdir. The first
	// attempt truncates them, later attempts append.
	Stdout string `json:"stdout,omitempty"`
	Stderr string `json:"stderr,omitempty"`
}

// Input is the input of a task from a client.
type Input struct {
	TTY  bool   `json:"tty,omitempty"` // the task has a terminal instead of pipes
	Rows uint16 `json:"rows,omitempty"`
	Cols uint16 `json:"cols,omitempty"`
	// Away is how long the client may be gone before the task ends. The time counts from the start of its process.
	Away time.Duration `json:"away"`
}

// Limits are the limits of one task, as far as the host can enforce them; zero is no limit.
type Limits struct {
	CPUs    int      `json:"cpus,omitempty"`    // a weight, or with Quota a maximum
	Quota   bool     `json:"quota,omitempty"`   // no more than CPUs, even if the host is idle
	Memory  job.Size `json:"memory,omitempty"`  // without swap
	PIDs    int      `json:"pids,omitempty"`    // processes and threads
	Scratch job.Size `json:"scratch,omitempty"` // of its scratch directory
	// UserScratch limits what all tasks of its user hold on the disk of this host.
	UserScratch job.Size `json:"user_scratch,omitempty"`
	Closed      []Closed `json:"closed,omitempty"` // device files that it may not open
	// DeviceMemory bounds the memory of devices of which it has a share.
	DeviceMemory []DeviceMemory `json:"device_memory,omitempty"`
}

// DeviceMemory is the most that a task may take of the memory of one device.
type DeviceMemory struct {
	PCI   string `json:"pci"` // bus id
	Bytes int64  `json:"bytes"`
}

// Closed are the device files of one major number, except those that a task may open.
type Closed struct {
	Major  uint32   `json:"major"`
	Minors uint32   `json:"minors"`         // how many minor numbers the major number has
	Open   []uint32 `json:"open,omitempty"` // minor numbers that the task may open, sorted
}

// Container is what a Start asks for if the task is a container.
type Container struct {
	Host    string   `json:"host"` // of the engine, such as unix:///var/run/docker.sock
	Image   string   `json:"image"`
	Mounts  []string `json:"mounts,omitempty"`  // SRC:DST[:ro]
	Allowed []string `json:"allowed,omitempty"` // directories; SRC must be one of them or below one
	// As is the user inside: empty for the user who submitted the task, "image" for the user of the image, or
	// UID[:GID].
	As   string `json:"as,omitempty"`
	GPUs GPUs   `json:"gpus,omitzero"`
	// HostNetwork gives the container the network of the host, because the members of a gang meet there.
	HostNetwork bool `json:"host_network,omitempty"`
}

// GPUs says how the engine is asked for the GPUs of a container. It is zero for a container that gets none.
type GPUs struct {
	IDs          []string `json:"ids,omitempty"`          // for Driver
	CDI          []string `json:"cdi,omitempty"`          // their names, for an engine that knows all of them
	Driver       string   `json:"driver,omitempty"`       // of the engine, for an engine that does not know all of CDI
	Capabilities []string `json:"capabilities,omitempty"` // that Driver is asked for
	Mounts       []string `json:"mounts,omitempty"`       // directories of the host that the container gets at the same paths
}

// Stop asks for the end of an attempt's processes.
type Stop struct {
	Attempt string        `json:"attempt"`
	Grace   time.Duration `json:"grace"`
	Reason  string        `json:"reason"`
}

// Signal asks to send a signal to all processes of an attempt.
type Signal struct {
	Attempt string `json:"attempt"`
	Number  int    `json:"number"`
}

// Extension moves one deadline later.
type Extension struct {
	Attempt  string        `json:"attempt"`
	Deadline time.Duration `json:"deadline"`       // on CLOCK_BOOTTIME
	Skew     time.Duration `json:"skew,omitempty"` // as in Start
}

// Report is one report of a runner; exactly one field is set.
type Report struct {
	Welcome *Welcome `json:"welcome,omitempty"`
	Started *Started `json:"started,omitempty"`
	Ended   *Ended   `json:"ended,omitempty"`
	// Progress is sent only for a task that has no process yet.
	Progress *Progress `json:"progress,omitempty"`
}

// Welcome is a runner's first message on a connection: all attempts that it has. Exits are on disk.
type Welcome struct {
	Info     Info      `json:"info"`
	Starting []string  `json:"starting,omitempty"`
	Running  []Started `json:"running,omitempty"`
}

// Started says that the main process of an attempt exists.
type Started struct {
	Attempt string    `json:"attempt"`
	PID     int       `json:"pid"`
	Began   time.Time `json:"began,omitzero"` // wall clock, for people
}

// Ended says that no process of an attempt is left and that its exit is on disk. Without Exit the exit is not known:
// an earlier runner died with the task.
type Ended struct {
	Attempt string    `json:"attempt"`
	Exit    *job.Exit `json:"exit,omitempty"`
	Segment int       `json:"segment,omitempty"` // number of this runner's journal segment that holds it
	Silent  bool      `json:"silent,omitempty"`  // it had a process and wrote no output; older runners never say so
	// CPU and MaxRSS are those of its Record; 0: not known, as from older runners.
	CPU    time.Duration `json:"cpu_ns,omitempty"`
	MaxRSS job.Size      `json:"max_rss,omitempty"`
}

// Progress says for people what keeps a task from starting.
type Progress struct {
	Attempt string `json:"attempt"`
	Detail  string `json:"detail"`
}

// message is a Request or a Report.
type message interface{ Validate() error }

// Frame encodes a message with its length. It refuses a message that the other side would refuse, because that would
// break the connection.
func Frame(m message) ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return encode(m)
}

func encode(msg any) ([]byte, error) {
	var b bytes.Buffer
	b.Write(make([]byte, 4))
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(msg); err != nil {
		return nil, fmt.Errorf("runner: encode %T: %w", msg, err)
	}
	frame := b.Bytes()
	if len(frame)-4 > maxFrame {
		return nil, fmt.Errorf("runner: encode %T: %d bytes; at most %d", msg, len(frame)-4, maxFrame)
	}
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4)) //nolint:gosec // bounded by maxFrame above
	return frame, nil
}

// readFrame reads one message. Beyond plainFrame it allocates memory as bytes arrive, and does not trust the length.
func readFrame(r io.Reader, msg any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := int64(binary.BigEndian.Uint32(head[:]))
	if n > maxFrame {
		return fmt.Errorf("runner: frame of %d bytes; at most %d", n, maxFrame)
	}
	text, err := readText(r, n)
	if err != nil {
		return errors.Join(io.ErrUnexpectedEOF, err)
	}
	if err := json.Unmarshal(text, msg); err != nil {
		return fmt.Errorf("runner: frame: %w", err)
	}
	return nil
}

// readText reads n bytes.
func readText(r io.Reader, n int64) ([]byte, error) {
	if n <= plainFrame {
		text := make([]byte, n)
		_, err := io.ReadFull(r, text)
		return text, err
	}
	var b bytes.Buffer
	_, err := io.CopyN(&b, r, n)
	return b.Bytes(), err
}

// ReadReport reads and checks a message of a runner.
func ReadReport(r io.Reader) (Report, error) {
	var m Report
	if err := readFrame(r, &m); err != nil {
		return Report{}, err
	}
	return m, m.Validate()
}

// ReadRequest reads and checks a message of a daemon.
func ReadRequest(r io.Reader) (Request, error) {
	var m Request
	if err := readFrame(r, &m); err != nil {
		return Request{}, err
	}
	return m, m.Validate()
}

// Validate returns an error if the report is not valid.
func (m Report) Validate() error {
	var names []string
	set := 0
	if w := m.Welcome; w != nil {
		set++
		names = append(names, w.Starting...)
		for _, s := range w.Running {
			names = append(names, s.Attempt)
		}
	}
	if m.Started != nil {
		set++
		names = append(names, m.Started.Attempt)
	}
	if m.Ended != nil {
		set++
		names = append(names, m.Ended.Attempt)
	}
	if m.Progress != nil {
		set++
		names = append(names, m.Progress.Attempt)
	}
	if set != 1 {
		return fmt.Errorf("runner: report with %d fields set, want 1", set)
	}
	return attempts(names...)
}

// Validate returns an error if the request is not valid.
func (m Request) Validate() error {
	set, bad := 0, error(nil)
	check := func(err error) {
		set++
		if err != nil {
			bad = err
		}
	}
	if m.Start != nil {
		check(m.Start.Validate())
	}
	if m.Stop != nil {
		check(errors.Join(attempts(m.Stop.Attempt), durations(m.Stop.Grace)))
	}
	if m.Signal != nil {
		check(m.Signal.Validate())
	}
	if len(m.Extend) > 0 {
		check(nil)
		for _, e := range m.Extend {
			bad = errors.Join(bad, attempts(e.Attempt), durations(e.Deadline))
		}
	}
	if m.Drain {
		check(nil)
	}
	if m.Leave {
		check(nil)
	}
	if bad == nil && set != 1 {
		return fmt.Errorf("runner: request with %d fields set, want 1", set)
	}
	return bad
}

// Validate returns an error if the signal is not valid.
func (s Signal) Validate() error {
	if s.Number < 1 || s.Number > maxSignal {
		return fmt.Errorf("runner: signal %d: from 1 to %d", s.Number, maxSignal)
	}
	return attempts(s.Attempt)
}

// checkProgram checks the command or script.
func (s Start) checkProgram() error {
	switch {
	case len(s.Command) > 0 && s.Script != "", len(s.Command) == 0 && s.Script == "" && s.Container == nil:
		return errors.New("runner: start: want either a command or a script")
	case len(s.Command) > 0 && s.Command[0] == "":
		return errors.New("runner: start: the program's name is empty")
	case len(s.Args) > 0 && s.Script == "":
		return errors.New("runner: start: arguments of no script")
	case len(s.Command)+len(s.Args)+len(s.Env) > maxWords:
		return fmt.Errorf("runner: start: %d words; at most %d", len(s.Command)+len(s.Args)+len(s.Env), maxWords)
	}
	return nil
}

// Validate returns an error if the start is not valid.
func (s Start) Validate() error {
	if err := s.checkProgram(); err != nil {
		return err
	}
	switch {
	case s.Files != "" && s.Files[0] != '/':
		return errors.New("runner: start: files is not absolute")
	case s.Workdir != "" && s.Workdir[0] != '/':
		return errors.New("runner: start: workdir is not absolute")
	case s.SubmitDir != "" && s.SubmitDir[0] != '/':
		return errors.New("runner: start: submit directory is not absolute")
	case s.Warn < 0 || s.Warn > maxSignal || s.Warn == int(unix.SIGKILL):
		return fmt.Errorf("runner: start: warning by signal %d", s.Warn)
	case s.Limits.CPUs < 0 || s.Limits.CPUs > job.MaxCPUs || s.Limits.Memory < 0 || s.Limits.PIDs < 0 || s.Limits.Scratch < 0 || s.Limits.UserScratch < 0 || len(s.Limits.Closed) > maxClosed:
		return fmt.Errorf("runner: start: limits %+v", s.Limits)
	case len(s.Limits.DeviceMemory) > maxDevices || slices.ContainsFunc(s.Limits.DeviceMemory, func(m DeviceMemory) bool { return m.Bytes <= 0 }):
		return fmt.Errorf("runner: start: memory of devices %+v", s.Limits.DeviceMemory)
	case s.OutputLimit < output.MinBound:
		return fmt.Errorf("runner: start: output limit %d: from %d", s.OutputLimit, output.MinBound)
	case !s.Hold && s.Deadline == 0:
		return errors.New("runner: start: neither deadline nor hold")
	}
	all := [][]string{s.Command, s.Args, s.Env, s.Shared, {s.Workdir, s.SubmitDir, s.User, s.Files, s.Stdout, s.Stderr}}
	if c := s.Container; c != nil {
		if c.Image == "" || c.Host == "" {
			return errors.New("runner: start: a container without image or engine")
		}
		all = append(all, c.Mounts, c.Allowed, c.GPUs.IDs, c.GPUs.CDI, c.GPUs.Mounts, []string{c.Host, c.Image, c.As})
	}
	for _, words := range all {
		for _, w := range words {
			if strings.ContainsRune(w, 0) {
				return errors.New("runner: start: a word holds a zero byte")
			}
		}
	}
	return errors.Join(attempts(s.names()...), durations(s.Deadline, s.Lead, s.Limit, s.Grace, s.WarnBefore), s.Input.Validate())
}

// names returns the attempts that the start names.
func (s Start) names() []string {
	if s.Spare == "" {
		return []string{s.Attempt}
	}
	return []string{s.Attempt, s.Spare}
}

// Validate returns an error if the input is not valid. Nil is valid.
func (in *Input) Validate() error {
	if in != nil && (in.Away <= 0 || in.Away > MaxDuration) {
		return fmt.Errorf("runner: start: client away for %s", in.Away)
	}
	return nil
}

func attempts(names ...string) error {
	for _, n := range names {
		if _, err := job.ParseAttempt(n); err != nil {
			return fmt.Errorf("runner: %w", err)
		}
	}
	return nil
}

func durations(ds ...time.Duration) error {
	for _, d := range ds {
		if d < 0 || d > MaxDuration {
			return fmt.Errorf("runner: duration %s out of range", d)
		}
	}
	return nil
}
