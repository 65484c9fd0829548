package files

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/upload"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// inner is a driver that records its requests.
type inner struct {
	mu      sync.Mutex
	started []driver.Task // guarded by mu
	stopped []job.Attempt // guarded by mu
	found   []driver.Event
}

func (d *inner) Start(t driver.Task) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.started = append(d.started, t)
	return nil
}

func (d *inner) Stop(a job.Attempt, _ time.Duration, _ string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = append(d.stopped, a)
	return nil
}

func (d *inner) Signal(job.Attempt, int) error                    { return nil }
func (d *inner) Extend(map[job.Attempt]leaseclock.BootTime) error { return nil }
func (d *inner) Forget(job.Attempt) error                         { return nil }
func (d *inner) NeverBegun(job.Attempt) bool                      { return false }

func (d *inner) Adopt(context.Context) ([]driver.Event, error) { return d.found, nil }

// away is a holder that does not answer until there is closed.
type away struct {
	upload.Holder

	there chan struct{}
	asked chan struct{}
}

func (h away) Tree(ctx context.Context, x upload.Hash) ([]byte, error) {
	select {
	case h.asked <- struct{}{}:
	default:
	}
	select {
	case <-h.there:
		return h.Holder.Tree(ctx, x)
	default:
		return nil, errors.New("it does not answer")
	}
}

type holder struct{ s *upload.Store }

func (holder) String() string { return "amy" }

func (h holder) Tree(_ context.Context, x upload.Hash) ([]byte, error) { return h.s.TreeText(x) }

func (h holder) Chunks(_ context.Context, refs []upload.Ref, take func([]byte) error) error {
	from := h.s.Reader()
	defer from.Close()
	for _, r := range refs {
		data, err := from.Append(nil, r)
		if err != nil {
			return err
		}
		if err := take(data); err != nil {
			return err
		}
	}
	return nil
}

type rig struct {
	t      *testing.T
	cfg    Config
	inner  *inner
	store  *upload.Store
	holder upload.Holder
	events chan driver.Event
	d      *Driver
	stop   func()
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, inner: &inner{}, events: make(chan driver.Event, 16)}
	r.cfg = Config{Dir: filepath.Join(t.TempDir(), "run"), Boot: "b1", AllowRoot: true}
	if err := protocol.Dir(r.cfg.Dir).Make(); err != nil {
		t.Fatal(err)
	}
	r.store = upload.NewStore(upload.Config{Dir: t.TempDir(), Most: 1 << 30}, slog.New(slog.DiscardHandler))
	r.run()
	t.Cleanup(func() { r.stop() })
	return r
}

// run starts a driver on the files on disk.
func (r *rig) run() {
	r.t.Helper()
	r.d = New(r.cfg, Needs{
		Driver: r.inner, Adopter: r.inner, Fetcher: upload.NewFetcher(r.store), Store: r.store,
		Holders: func(context.Context, job.ID) []upload.Holder { return []upload.Holder{r.holder} },
		Tell:    func(e driver.Event) { r.events <- e },
	}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.d.Run(ctx) }()
	r.stop = func() { cancel(); <-done }
}

// putAs stores a chunk that a user uploads.
func putAs(t *testing.T, s *upload.Store, user string, data []byte) upload.Ref {
	t.Helper()
	size := uint32(len(data)) //nolint:gosec // at most upload.MaxChunk
	if err := s.PutAll(bytes.NewReader(append(upload.AppendHead(nil, size), data...)), user); err != nil {
		t.Fatal(err)
	}
	return upload.Ref{Hash: upload.Sum(data), Size: size}
}

// upload makes a tree that another node holds.
func (r *rig) upload(files map[string]string) (string, *upload.Store) {
	r.t.Helper()
	s := upload.NewStore(upload.Config{Dir: r.t.TempDir(), Most: 1 << 30}, slog.New(slog.DiscardHandler))
	t := upload.Tree{}
	for name, text := range files {
		ref := putAs(r.t, s, "ann", []byte(text))
		t.Entries = append(t.Entries, upload.Entry{Path: name, Kind: upload.File, Mode: 0o644, Size: int64(len(text)), Chunks: upload.Refs{ref}})
	}
	slices.SortFunc(t.Entries, upload.ByPath)
	text, h, err := t.Encode()
	if err != nil {
		r.t.Fatal(err)
	}
	if _, _, err := s.PutTree(text, "ann"); err != nil {
		r.t.Fatal(err)
	}
	r.holder = holder{s}
	return h.String(), s
}

func (r *rig) task(n int, spec job.Spec) driver.Task {
	return driver.Task{
		Attempt: job.Attempt{Job: job.NewID(7, uint64(n)), N: 1}, Spec: spec, User: "root", Grace: time.Second,
		Deadline: leaseclock.Now().Add(time.Minute), Env: []string{"A=b"},
	}
}

// next returns the next event, except for reports of what a task waits for.
func (r *rig) next() driver.Event {
	r.t.Helper()
	return r.event(func(e driver.Event) bool { return e.Detail == "" })
}

// event returns the next matching event. It drops those before it.
func (r *rig) event(is func(driver.Event) bool) driver.Event {
	r.t.Helper()
	late := time.NewTimer(20 * time.Second)
	defer late.Stop()
	for {
		select {
		case e := <-r.events:
			if is(e) {
				return e
			}
		case <-late.C:
			r.t.Fatal("no event within the time-out")
			return driver.Event{}
		}
	}
}

// begun waits until the inner driver is asked to start the attempt, and returns the task that it got.
func (r *rig) begun(a job.Attempt) driver.Task {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	defer cancel()
	r.d.Await(ctx, a)
	r.inner.mu.Lock()
	defer r.inner.mu.Unlock()
	for _, t := range r.inner.started {
		if t.Attempt == a {
			return t
		}
	}
	r.t.Fatal("the task was not started within the time-out")
	return driver.Task{}
}

// scratch makes the directory of a started task, like the inner driver would.
func (r *rig) scratch(t driver.Task, files map[string]string) string {
	r.t.Helper()
	dir := r.cfg.scratch(t.Attempt)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if t.Files != "" {
		if err := os.Rename(t.Files, dir); err != nil {
			r.t.Fatal(err)
		}
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			r.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			r.t.Fatal(err)
		}
	}
	return dir
}

func exited(a job.Attempt) driver.Event {
	return driver.Event{Attempt: a, Kind: driver.Exited, Exit: job.Exit{State: job.Failed, Code: 3, Started: true}}
}

func pack(t *testing.T, p Place, base bool, globs ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	if err := p.Pack(t.Context(), globs, base, &out); err != nil {
		return "", err
	}
	var names []string
	for in := tar.NewReader(&out); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return strings.Join(names, " "), nil
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			h.Name += "=" + string(text)
		}
		names = append(names, h.Name)
	}
}

func TestTaskWithoutFilesDoesNotUseTheDisk(t *testing.T) {
	r := newRig(t)
	k := r.task(1, job.Spec{})
	if err := r.d.Start(k); err != nil {
		t.Fatal(err)
	}
	r.begun(k.Attempt)
	r.d.Driven(exited(k.Attempt))
	r.next()
	if _, err := os.Stat(r.cfg.staging()); err == nil {
		t.Error("the staging directory exists")
	}
}

func TestFilesArriveBeforeTheStart(t *testing.T) {
	r := newRig(t)
	tree, _ := r.upload(map[string]string{"a": "1", "b": "2"})
	k := r.task(1, job.Spec{Tree: tree})
	if err := r.d.Start(k); err != nil {
		t.Fatal(err)
	}
	got := r.begun(k.Attempt)
	text, err := os.ReadFile(filepath.Join(got.Files, "b"))
	if err != nil || string(text) != "2" {
		t.Errorf(`%q, %v, want no error and "2"`, text, err)
	}
	r.d.Driven(exited(k.Attempt))
	r.next()
	if entries, err := os.ReadDir(r.cfg.staging()); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v, want no error and none", entries, err)
	}
}

func TestTaskWaitsForTheHolderOfItsFiles(t *testing.T) {
	r := newRig(t)
	tree, s := r.upload(map[string]string{"a": "1"})
	h := away{holder{s}, make(chan struct{}), make(chan struct{}, 1)}
	r.holder = h
	k := r.task(1, job.Spec{Tree: tree})
	if err := r.d.Start(k); err != nil {
		t.Fatal(err)
	}
	<-h.asked
	e := r.event(func(e driver.Event) bool { return strings.Contains(e.Detail, "it does not answer") })
	if e.Kind != driver.Starting || e.Attempt != k.Attempt {
		t.Errorf("%+v, want Kind %v and Attempt %v", e, driver.Starting, k.Attempt)
	}
	close(h.there)
	r.begun(k.Attempt)
}

// slow is a holder that sends its first chunk and then waits until goOn is closed.
type slow struct {
	holder
	goOn chan struct{}
}

func (h slow) Chunks(ctx context.Context, refs []upload.Ref, take func([]byte) error) error {
	if err := h.holder.Chunks(ctx, refs[:1], take); err != nil {
		return err
	}
	select {
	case <-h.goOn:
	case <-ctx.Done():
	}
	return h.holder.Chunks(ctx, refs[1:], take)
}

// TestProgressIsReported checks that the progress of a transfer is reported for both tasks that wait for its tree.
func TestProgressIsReported(t *testing.T) {
	r := newRig(t)
	tree, s := r.upload(map[string]string{"a": strings.Repeat("a", 200_000), "b": strings.Repeat("b", 200_000), "c": strings.Repeat("c", 100_000)})
	h := slow{holder{s}, make(chan struct{})}
	r.holder = h
	waiting := map[job.Attempt]bool{}
	for n := range 2 {
		k := r.task(n+1, job.Spec{Tree: tree})
		waiting[k.Attempt] = true
		if err := r.d.Start(k); err != nil {
			t.Fatal(err)
		}
	}
	tasks := slices.Collect(maps.Keys(waiting))
	for len(waiting) > 0 {
		e := r.event(func(e driver.Event) bool {
			return e.Kind == driver.Starting && strings.Contains(e.Detail, " of 0.5 MB from amy")
		})
		if strings.Contains(e.Detail, ": 0.2 of") || strings.Contains(e.Detail, ": 0.1 of") {
			delete(waiting, e.Attempt)
		}
	}
	close(h.goOn)
	for _, a := range tasks {
		r.begun(a)
	}
}

func TestTaskThatEndsDuringItsTransferIsNotStarted(t *testing.T) {
	for _, c := range []struct {
		name  string
		spec  func(*rig, *driver.Task)
		then  func(*rig, driver.Task)
		state job.State
		says  string
	}{
		{"cancelled", nil, func(r *rig, k driver.Task) { _ = r.d.Stop(k.Attempt, 0, "no more") }, job.Cancelled, "no more"},
		{"lease", func(_ *rig, k *driver.Task) { k.Deadline = leaseclock.Now().Add(50 * time.Millisecond) }, nil, job.NodeFail, "lease"},
		{"nowhere", func(r *rig, _ *driver.Task) {
			r.holder = holder{upload.NewStore(upload.Config{Dir: r.t.TempDir(), Most: 1}, slog.New(slog.DiscardHandler))}
		}, nil, job.Failed, "not in the store"},
		{"nobody", func(_ *rig, k *driver.Task) { k.User = "no-such-user-xyz" }, nil, job.Failed, "no-such-user-xyz"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			tree, s := r.upload(map[string]string{"a": "1"})
			r.holder = away{holder{s}, make(chan struct{}), make(chan struct{}, 1)}
			k := r.task(1, job.Spec{Tree: tree})
			if c.name == "nobody" && os.Getuid() != 0 {
				t.Skip("only root runs tasks of other users")
			}
			if c.spec != nil {
				c.spec(r, &k)
			}
			if err := r.d.Start(k); err != nil {
				t.Fatal(err)
			}
			if c.then != nil {
				c.then(r, k)
			}
			e := r.next()
			if e.Kind != driver.Failed || e.Exit.State != c.state || !strings.Contains(e.Exit.Reason, c.says) || e.Exit.Started {
				t.Errorf("got %+v, want a failed task that never started, with the reason of the case", e)
			}
			if len(r.inner.started) != 0 {
				t.Error("the task was started")
			}
			if entries, err := os.ReadDir(r.cfg.staging()); err != nil || len(entries) != 0 {
				t.Errorf("left behind: %v, %v, want no error and none", entries, err)
			}
		})
	}
}

func TestNextDaemonContinuesATransfer(t *testing.T) {
	r := newRig(t)
	tree, s := r.upload(map[string]string{"a": "1"})
	h := away{holder{s}, make(chan struct{}), make(chan struct{}, 1)}
	r.holder = h
	k := r.task(1, job.Spec{Tree: tree, Download: []string{"out"}})
	if err := r.d.Start(k); err != nil {
		t.Fatal(err)
	}
	<-h.asked
	r.stop()
	r.run()
	found, err := r.d.Adopt(t.Context())
	if err != nil || len(found) != 1 || found[0].Attempt != k.Attempt || found[0].Kind != driver.Starting {
		t.Fatalf("adopted %+v, %v, want the attempt that starts", found, err)
	}
	close(h.there)
	got := r.begun(k.Attempt)
	if got.Env[0] != "A=b" || got.Deadline != k.Deadline {
		t.Errorf(`it became %+v, want Env[0] "A=b" and Deadline %v`, got, k.Deadline)
	}
	// A third daemon keeps the task's files, though the task ended before that daemon started.
	r.scratch(got, map[string]string{"out": "x"})
	r.stop()
	r.inner.found = []driver.Event{exited(k.Attempt)}
	r.run()
	if found, err = r.d.Adopt(t.Context()); err != nil || len(found) != 1 {
		t.Fatalf("adopted %+v, %v, want no error and 1 of them", found, err)
	}
	p, err := r.d.Ended(k.Attempt)
	if err != nil {
		t.Fatal(err)
	}
	if names, err := pack(t, p, false, "."); err != nil || names != "out=x" {
		t.Errorf(`%q, %v, want no error and "out=x"`, names, err)
	}
}

func TestMatchingFilesAreKept(t *testing.T) {
	r := newRig(t)
	k := r.task(1, job.Spec{Download: []string{"ckpt/*", "log", "none/*", "up/*", "**/deep.txt", "out"}})
	if err := r.d.Start(k); err != nil {
		t.Fatal(err)
	}
	dir := r.scratch(r.begun(k.Attempt), map[string]string{
		"ckpt/a": "1", "ckpt/sub/b": "2", "log": "3", "other": "4", "x/y/deep.txt": "5", "../exit.json": "{}",
	})
	for at, target := range map[string]string{"up": "..", "out": "/etc/passwd", "ckpt/link": "a", "ckpt/evil": "../../../x"} {
		if err := os.Symlink(target, filepath.Join(dir, at)); err != nil {
			t.Fatal(err)
		}
	}
	living, err := r.d.Living(k.Attempt, k.User, k.Spec)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pack(t, living, true, "out"); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "out is a link that leads out") {
		t.Errorf(`a link that leads outside: %v, want ErrNone and "out is a link that leads out" in it`, err)
	}
	r.d.Driven(exited(k.Attempt))
	if e := r.next(); e.Exit.Code != 3 {
		t.Errorf("%+v, want Exit.Code 3", e)
	}
	if err := os.RemoveAll(dir); err != nil { // as it is once nobody needs it
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "../exit.json")); err != nil {
		t.Errorf("a link led out of the task's directory: %v", err)
	}
	p, err := r.d.Ended(k.Attempt)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		globs []string
		base  bool
		want  string
	}{
		{[]string{"."}, false, "ckpt/ ckpt/a=1 ckpt/link ckpt/sub/ ckpt/sub/b=2 log=3 x/ x/y/ x/y/deep.txt=5"},
		{[]string{"ckpt/*"}, true, "a=1 link sub/ sub/b=2"},
		{[]string{"ckpt/s*", "log"}, false, "ckpt/sub/ ckpt/sub/b=2 log=3"},
	} {
		if names, err := pack(t, p, c.base, c.globs...); err != nil || names != c.want {
			t.Errorf("%v: %q, want %q, %v", c.globs, names, c.want, err)
		}
	}
	if _, err := pack(t, p, false, "other"); !errors.Is(err, ErrNone) {
		t.Errorf("what was not asked for: %v, want ErrNone", err)
	}
	if !slices.Equal(p.Missing, []string{"none/*", "up/*"}) {
		t.Errorf("missing: %v, want %v", p.Missing, []string{"none/*", "up/*"})
	}
	if _, err := r.d.Ended(job.Attempt{Job: k.Attempt.Job, N: 2}); !errors.Is(err, ErrNone) {
		t.Errorf("another attempt: %v, want ErrNone", err)
	}
}

// TestNextDaemonFindsFilesThatWereBeingKept kills a daemon after it has moved the files of a task and before it has
// recorded that. The next daemon finds the files in their new place, and reports none of them as missing.
func TestNextDaemonFindsFilesThatWereBeingKept(t *testing.T) {
	r := newRig(t)
	k := r.task(1, job.Spec{Download: []string{"ckpt", "ckpt/*", "none"}})
	if err := r.d.Start(k); err != nil {
		t.Fatal(err)
	}
	r.scratch(r.begun(k.Attempt), map[string]string{"ckpt/a": "1"})
	r.d.keeper.keep(k, exited(k.Attempt))
	if err := os.Remove(r.cfg.about(k.Attempt)); err != nil {
		t.Fatal(err)
	}
	r.d.Driven(exited(k.Attempt))
	r.next()
	p, err := r.d.Ended(k.Attempt)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.Missing, []string{"none"}) || p.Problem != "" {
		t.Errorf("missing %v, problem %q, want %v and none", p.Missing, p.Problem, []string{"none"})
	}
	if names, err := pack(t, p, false, "ckpt"); err != nil || names != "ckpt/ ckpt/a=1" {
		t.Errorf(`%q, %v, want no error and "ckpt/ ckpt/a=1"`, names, err)
	}
}

// TestTreeIsBounded checks that the size of a tree is bounded before it is written to disk. A small tree can be large
// on disk, because it can name the same chunk any number of times.
func TestTreeIsBounded(t *testing.T) {
	r := newRig(t)
	r.cfg.Most = 64 << 10
	r.stop()
	r.run()
	s := upload.NewStore(upload.Config{Dir: t.TempDir(), Most: 1 << 30}, slog.New(slog.DiscardHandler))
	ref := putAs(t, s, "ann", make([]byte, 16<<10))
	file := func(chunks int64) []upload.Entry {
		return []upload.Entry{{Path: "a", Kind: upload.File, Mode: 0o644, Size: chunks << 14, Chunks: slices.Repeat(upload.Refs{ref}, int(chunks))}}
	}
	dirs := make([]upload.Entry, 20)
	for i := range dirs {
		dirs[i] = upload.Entry{Path: string(rune('a' + i)), Kind: upload.Dir, Mode: 0o755}
	}
	r.holder = holder{s}
	for n, entries := range [][]upload.Entry{file(1), file(8), dirs} {
		tree := upload.Tree{Entries: entries}
		text, h, err := tree.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.PutTree(text, "ann"); err != nil {
			t.Fatal(err)
		}
		k := r.task(n+1, job.Spec{Tree: h.String()})
		if err := r.d.Start(k); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			r.begun(k.Attempt)
			continue
		}
		e := r.next()
		if e.Kind != driver.Failed || e.Exit.Code != neverRan || !strings.Contains(e.Exit.Reason, "scratch quota of 64KiB") {
			t.Errorf(`%d: %+v, want Kind %v, Exit.Code %v and Exit.Reason "scratch quota of 64KiB" in it`, n, e, driver.Failed, neverRan)
		}
	}
}

func TestFilesAreReadAsTheUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can read as another user")
	}
	r := newRig(t)
	dir := t.TempDir()
	for at := dir; at != os.TempDir(); at = filepath.Dir(at) { // so that others may enter
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{"open": 0o644, "secret": 0o600} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o666); err != nil {
		t.Fatal(err)
	}
	p, err := r.d.Living(job.Attempt{}, "nobody", job.Spec{Workdir: dir})
	if err != nil {
		t.Skipf("no user nobody: %v", err)
	}
	if names, err := pack(t, p, false, "open", "pipe"); err != nil || names != "open=open" {
		t.Errorf(`%q, %v, want no error and "open=open"`, names, err)
	}
	if names, err := pack(t, p, false, "secret"); !errors.Is(err, os.ErrPermission) {
		t.Errorf("read %q, %v, want os.ErrPermission", names, err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "secret")); err != nil || string(text) != "secret" {
		t.Errorf("this process lost its own rights: %v", err)
	}
}
