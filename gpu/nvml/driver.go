package nvml

// Driver: the daemon's side, which starts one child after another.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/gpu/nvidia"
)

// Config says how the child is started, and its timeouts.
type Config struct {
	// Command is the program with its arguments. It must call Serve on its standard input and output.
	Command []string
	// Timeout bounds the time of an answer, or of the part of an answer that is about one card. A healthy host needs
	// milliseconds.
	Timeout time.Duration
	// WakeTimeout bounds the time to list one card. Without persistence mode a card sleeps, and takes seconds to wake.
	WakeTimeout time.Duration
	// StartTimeout bounds the start of the library: without persistence mode the driver wakes each GPU, which takes
	// seconds.
	StartTimeout time.Duration
	// Libraries returns directories in which the child also looks for the library. Nil: there are none.
	Libraries func() []string
}

// DefaultConfig returns a configuration that lacks only the command.
func DefaultConfig() Config {
	return Config{Timeout: 5 * time.Second, WakeTimeout: 30 * time.Second, StartTimeout: time.Minute}
}

// Validate returns an error if the configuration cannot work.
func (c Config) Validate() error {
	if len(c.Command) == 0 || c.Command[0] == "" {
		return errors.New("nvml: no command for the agent")
	}
	if c.Timeout <= 0 || c.WakeTimeout <= 0 || c.StartTimeout <= 0 {
		return fmt.Errorf("nvml: timeouts %s, %s and %s: must be above 0", c.Timeout, c.WakeTimeout, c.StartTimeout)
	}
	return nil
}

const (
	// noneFor is how long the driver believes a child that found no NVIDIA driver if the kernel has not loaded one
	// either, and noneLoaded if it has. A change of what the kernel says ends both.
	noneFor    = 10 * time.Minute
	noneLoaded = 30 * time.Second
	// minPause and maxPause bound the pause before the next child is started. The pause doubles with each failure.
	minPause = time.Second
	maxPause = time.Minute
	// stableAfter is the lifetime after which a child's failure does not double the pause.
	stableAfter = 2 * time.Minute
	// idlePoll bounds how often this package polls.
	idlePoll = 10 * time.Second
	// closeWait bounds the wait for the end of a child, which was killed by then. A child in an uninterruptible call of
	// the kernel driver ends only when the call does.
	closeWait = 2 * time.Second
)

// errNotEnded means that a killed child has not ended.
var errNotEnded = errors.New("the agent was killed and has not ended: the kernel's driver hangs")

// errNone means that this host has no NVIDIA GPU.
var errNone = errors.New("no NVIDIA GPU")

// Driver is a gpu.Driver. It is safe for concurrent use.
type Driver struct {
	cfg    Config
	log    *slog.Logger
	start  func() (*child, error)
	root   string // of the file system
	kernel *nvidia.Kernel
	faults faults
	closed chan struct{}
	ending sync.Once
	loops  sync.WaitGroup

	// turn is a lock: it holds one token. The holder of the token owns the fields below.
	turn   chan struct{}
	agent  *agent          // nil: none runs
	reaped <-chan struct{} // closed when the last killed child is gone; nil: none was killed
	listed []gpu.Device    // the last list that was returned
	hung   hung
	lost   again // a card was lost, or could not be listed
	found  found
	none   none
	failure
	notes string // last message about devices that cannot be listed
	// released says that no child may run. See Release.
	released bool
}

// failure is that of the last child.
type failure struct {
	failed  error // why it failed; nil once one answers
	retryAt time.Time
	pause   time.Duration
}

// none says that this host has no GPU.
type none struct {
	why   string
	until time.Time // when it is no longer believed
}

// found is what the last child found at its start.
type found struct {
	sign    string // of the driver
	path    string // of the library that it has loaded; empty: it has not listed
	library string // identity of the library
}

// New returns a driver; its first call starts the child.
func New(cfg Config, log *slog.Logger) (*Driver, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return newDriver(cfg, log, func() (*child, error) { return spawn(cfg.Command, cfg.environment()...) }), nil
}

func newDriver(cfg Config, log *slog.Logger, start func() (*child, error)) *Driver {
	d := &Driver{cfg: cfg, log: log, start: start, closed: make(chan struct{}), turn: make(chan struct{}, 1), hung: hung{}, root: "/", kernel: nvidia.NewKernel("/")}
	d.faults.log = log
	d.turn <- struct{}{}
	return d
}

// take waits for the turn.
func (d *Driver) take(ctx context.Context) error {
	select {
	case <-d.closed:
		return fmt.Errorf("nvml: %w", gpu.ErrClosed)
	default:
	}
	select {
	case <-d.turn:
	case <-d.closed:
		return fmt.Errorf("nvml: %w", gpu.ErrClosed)
	case <-ctx.Done():
		return fmt.Errorf("nvml: %w", ctx.Err())
	}
	select {
	case <-d.closed:
		d.give()
		return fmt.Errorf("nvml: %w", gpu.ErrClosed)
	default:
		return nil
	}
}

func (d *Driver) give() { d.turn <- struct{}{} }

// List returns the GPUs and MIG instances of this host. Without an NVIDIA driver the list is empty. It returns an
// error while the driver does not work.
func (d *Driver) List(ctx context.Context) ([]gpu.Device, error) {
	if err := d.take(ctx); err != nil {
		return nil, err
	}
	defer d.give()
	devices, err := d.list(ctx)
	return slices.Clone(devices), err
}

// list requires the turn.
func (d *Driver) list(ctx context.Context) ([]gpu.Device, error) {
	d.renew()
	r, err := d.ask(ctx, opList)
	if errors.Is(err, errNone) && len(d.listed) == 0 {
		return nil, nil
	}
	if err == nil {
		err = checkDevices(r.Devices)
	}
	if err != nil {
		return nil, fmt.Errorf("nvml: list: %w", err)
	}
	if notes := strings.Join(r.Notes, "; "); notes != d.notes {
		d.notes = notes
		if notes != "" {
			d.log.WarnContext(ctx, "some devices cannot be listed", "why", notes)
		}
	}
	if d.found.path == "" {
		d.found.path, d.found.library = r.Library, identity(r.Library)
	}
	if d.onlyHung(r.Devices) {
		return d.listed, nil
	}
	d.listed = slices.Concat(r.Devices, d.unlisted(r))
	slices.SortStableFunc(d.listed, func(a, b gpu.Device) int { return cmp.Compare(a.Index, b.Index) })
	d.lost.set(len(r.Notes) > len(d.hung.skip()))
	return d.listed, nil
}

// unlisted requires the turn. It returns the devices of the last list whose cards are there, but cannot be listed now: a
// new child does not know the name of a lost card.
func (d *Driver) unlisted(r reply) []gpu.Device {
	cards := map[int]bool{}
	kept := slices.DeleteFunc(slices.Clone(d.listed), func(was gpu.Device) bool {
		return slices.ContainsFunc(r.Devices, func(is gpu.Device) bool { return is.Index == was.Index || is.UUID == was.UUID })
	})
	for _, was := range kept {
		cards[was.Index] = true
	}
	if len(cards) > len(r.Notes) {
		return nil // some are gone, and nobody knows which
	}
	return kept
}

// onlyHung requires the turn. It reports whether a new list lacks cards of the last one only because they do not answer.
// Nothing is known about them then, not even that they are gone.
func (d *Driver) onlyHung(devices []gpu.Device) bool {
	skip, missing := d.hung.skip(), 0
	for _, was := range d.listed {
		switch {
		case slices.ContainsFunc(devices, func(dev gpu.Device) bool { return dev.UUID == was.UUID }):
		case slices.Contains(skip, was.Index):
			missing++
		default:
			return false
		}
	}
	return missing > 0 && missing+len(devices) == len(d.listed)
}

// renew requires the turn. It ends a child that cannot see what has changed since its start: another library, another
// driver in the kernel, or a card that was lost and may be back.
func (d *Driver) renew() {
	if d.agent == nil || d.agent.id == 0 || d.found.sign == d.sign() && d.found.library == identity(d.found.path) && !d.lost.due() {
		return
	}
	d.drop()
	d.ended()
}

// ended requires the turn. It waits for the end of the last child, and reports whether that is gone.
func (d *Driver) ended() bool {
	if d.reaped == nil {
		return true
	}
	timer := time.NewTimer(closeWait)
	defer timer.Stop()
	select {
	case <-d.reaped:
		d.reaped = nil
		return true
	case <-timer.C:
		return false
	}
}

// sign returns a text that changes when a driver is installed, loaded or replaced.
func (d *Driver) sign() string {
	text := sign(d.root)
	if d.cfg.Libraries == nil {
		return text
	}
	for _, dir := range d.cfg.Libraries() {
		if id := identity(filepath.Join(dir, libraryName)); id != gone {
			text += dir + " " + id + "\n"
		}
	}
	return text
}

// checkDevices returns an error if a list is not valid.
func checkDevices(devices []gpu.Device) error {
	if len(devices) > maxDevices {
		return fmt.Errorf("%w: %d devices", errWrong, len(devices))
	}
	seen := make(map[string]bool, len(devices))
	for _, d := range devices {
		if d.UUID == "" || seen[d.UUID] || d.Memory < 0 {
			return fmt.Errorf("%w: device %q", errWrong, d.UUID)
		}
		seen[d.UUID] = true
	}
	return nil
}

// Status returns the status of each device of the last List. While the driver does not answer, their health is
// unknown, and there is no error.
func (d *Driver) Status(ctx context.Context) ([]gpu.Status, error) {
	if err := d.take(ctx); err != nil {
		return nil, err
	}
	defer d.give()
	if d.listed == nil {
		if devices, err := d.list(ctx); err != nil || len(devices) == 0 {
			return nil, err
		}
	}
	r, err := d.ask(ctx, opStatus)
	if errors.Is(err, gpu.ErrClosed) || errors.Is(err, gpu.ErrReleased) || ctx.Err() != nil && err != nil {
		return nil, fmt.Errorf("nvml: status: %w", err)
	}
	d.hung.answered(d.listed, r.Statuses)
	if d.lost.set(slices.ContainsFunc(r.Statuses, func(s gpu.Status) bool { return s.Unread })); d.notes == "" && !d.lost.is {
		d.lost.pause = 0
	}
	all := arrange(d.listed, r.Statuses, d.hung.skip(), err)
	served := mpsPipe() != ""
	for i := range all {
		all[i].Served = served && all[i].Known()
	}
	return all, nil
}

// arrange puts statuses in the order of devices. A missing one gets unknown health.
func arrange(devices []gpu.Device, statuses []gpu.Status, skipped []int, why error) []gpu.Status {
	all := make([]gpu.Status, len(devices))
	for i, dev := range devices {
		detail := "the driver no longer lists it"
		if why != nil {
			detail = why.Error()
		} else if slices.Contains(skipped, dev.Index) {
			detail = "it does not answer"
		}
		all[i] = gpu.NotKnown(dev.UUID, detail)
		if at := slices.IndexFunc(statuses, func(s gpu.Status) bool { return s.UUID == dev.UUID }); at >= 0 {
			all[i] = statuses[at]
		}
	}
	return all
}

// ask requires the turn. It starts a child if none runs, and ends a child that fails.
func (d *Driver) ask(ctx context.Context, what op) (reply, error) {
	if err := d.running(ctx); err != nil {
		return reply{}, err
	}
	r, err := d.agent.ask(ctx, d.closed, request{Op: what, Skip: d.hung.skip()}, patience{answer: d.cfg.Timeout, wake: d.cfg.WakeTimeout})
	if at := d.agent.at; at != nil && errors.Is(err, errSlow) {
		d.hung.add(at.Card)
	}
	if err == nil && r.Error != "" {
		err = errors.New(r.Error)
	}
	if err != nil {
		return reply{}, d.blame(ctx, err)
	}
	if d.failed != nil {
		d.failed = nil
		d.log.InfoContext(ctx, "the gpu driver answers again")
	}
	return r, nil
}

// running requires the turn. It makes sure that a child runs and has said hello.
func (d *Driver) running(ctx context.Context) error {
	if d.agent == nil {
		if err := d.launch(); err != nil {
			return err
		}
	}
	if err := d.agent.greet(ctx, d.closed, d.cfg.StartTimeout); err != nil {
		return d.blame(ctx, err)
	}
	select {
	case <-d.agent.gone:
		if d.agent.hello == (hello{}) {
			return d.blame(ctx, d.agent.why)
		}
	default:
	}
	switch h := d.agent.hello; {
	case h.Error != "":
		return d.blame(ctx, errors.New(h.Error))
	case h.None != "":
		return d.believeNone(h.None)
	}
	return nil
}

// launch requires the turn. It starts a child unless none may run, or it is too early for the next.
func (d *Driver) launch() error {
	if d.released {
		return gpu.ErrReleased
	}
	now := time.Now()
	sign := d.sign()
	if now.Before(d.none.until) && sign == d.found.sign {
		return fmt.Errorf("%w: %s", errNone, d.none.why)
	}
	if now.Before(d.retryAt) && sign == d.found.sign {
		return d.failed
	}
	if d.reaped != nil {
		select {
		case <-d.reaped:
			d.reaped = nil
		default: // it hangs in the kernel, and so would the next child
			return errNotEnded
		}
	}
	c, err := d.start()
	if err != nil {
		d.fail(err, 0)
		return d.failed
	}
	d.agent, d.found = startAgent(c, d.faults.publish), found{sign: sign}
	d.none.until = time.Time{} // another child, another answer
	return nil
}

// believeNone requires the turn. The child found no driver and is ended.
func (d *Driver) believeNone(why string) error {
	d.drop()
	wait := noneFor
	if d.found.sign != "" {
		wait = noneLoaded
	}
	d.none.until = time.Now().Add(wait)
	if why != d.none.why {
		d.none.why = why
		d.log.Info("no NVIDIA driver: this host offers no GPUs", "why", why)
	}
	return fmt.Errorf("%w: %s", errNone, why)
}

// blame requires the turn. It ends the child, unless the caller gave up.
func (d *Driver) blame(ctx context.Context, err error) error {
	if errors.Is(err, gpu.ErrClosed) || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return err
	}
	lived := time.Since(d.agent.began)
	last := d.drop()
	if errors.Is(err, errEnded) {
		select { // a child that ended by itself is gone at once, and its last output says why
		case <-last.done:
			err = fmt.Errorf("%w: %s", err, last.last())
		case <-time.NewTimer(pipesLinger).C:
		}
	}
	d.fail(err, lived)
	return err
}

// drop requires the turn. It ends the child without waiting.
func (d *Driver) drop() *child {
	c := d.agent.child
	c.end()
	d.agent, d.reaped = nil, c.done
	return c
}

// fail requires the turn. It records the failure of a child that lived for this long.
func (d *Driver) fail(err error, lived time.Duration) {
	if lived >= stableAfter {
		d.pause = 0
	}
	d.pause = min(max(2*d.pause, minPause), maxPause)
	d.retryAt = time.Now().Add(d.pause)
	if d.failed == nil {
		d.log.Warn("the gpu driver does not answer", "err", err, "retry_in", d.pause)
	}
	d.failed = err
}

// Close ends the child and closes all channels of faults.
func (d *Driver) Close() error {
	d.ending.Do(func() {
		close(d.closed)
		<-d.turn // calls in progress return ErrClosed
		if d.agent != nil {
			d.drop()
		}
		if !d.ended() {
			d.log.Warn("the gpu agent was killed and has not ended", "waited", closeWait)
		}
		d.give()
		d.loops.Wait()
	})
	return nil
}
