package scratch

// Measuring what tasks hold on the disk of this host, and deciding which of them have to end for it.
//
// See docs/adr, ADR 21 and 156.

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
)

const (
	// restFactor bounds the CPU time that measuring takes: a directory that took one second to measure is not
	// measured again for 50 seconds. While the disk is nearly full it is shortFactor: only what is known can be ended.
	restFactor  = 50
	shortFactor = 4
	// latest is when a directory is measured again even if the disk did not fill up: other processes may have freed
	// as much as the task has written.
	latest = time.Minute
	// lookMost and lookLeast bound the pause between two looks at the disk.
	lookMost  = time.Second
	lookLeast = 20 * time.Millisecond
	// fastestBytes and fastestFiles are how much of a disk can be used up in a second: a host cannot write its memory
	// faster, nor make more files.
	fastestBytes = 8 << 30
	fastestFiles = 1 << 20
	// clearMost is how long the files of a task that was ended for a full disk may take to be removed, before another
	// task is ended for it.
	clearMost = 10 * time.Second
)

// Bounded is what one running task holds on the disk, and how much it may hold.
type Bounded struct {
	Attempt   job.Attempt
	User      string
	Path      string   // its scratch directory
	Tmp       string   // the directory that it has as its /tmp, which counts as a part of the scratch directory; empty: it has none
	Log       string   // the directory of its output, which also counts for the user, as do deleted files that it holds open
	Bound     job.Size // of the scratch directory; 0: none of its own
	UserBound job.Size // of all tasks of the user; 0: none
	Ending    bool     // it was told to end because it held too much
}

// Over is a task that has to end.
type Over struct {
	Attempt job.Attempt
	Why     string // for people
	Full    bool   // the disk is full: it has to end at once, and cannot save anything
}

// Meter finds tasks that hold too much. It remembers earlier measurements. It is not safe for concurrent use.
type Meter struct {
	// Members lists the processes of a task. Nil: none are known.
	Members func(job.Attempt) []int

	last   map[job.Attempt]*measurement
	parent string
	kept   kept
	victim []string  // directories of the task that was last ended for a full disk
	wait   time.Time // until when no other is ended while there is something in them
}

// measurement is the last measurement of one task.
type measurement struct {
	used  job.Size // of the scratch directory and /tmp
	logs  job.Size
	held  held
	files int64         // in it
	deep  bool          // it has more than maxDepth levels
	at    time.Time     // when it was measured
	disk  int64         // bytes in use on the whole disk at that time
	took  time.Duration // how long it took; the next one waits for a multiple of that
}

// due reports whether a directory may exceed the room that is left to it. It can have grown at most by as much as the
// whole disk has filled up, unless files elsewhere were deleted.
func (m *measurement) due(now time.Time, disk int64, room job.Size, short bool) bool {
	rest := m.took * restFactor
	if short {
		rest = m.took * shortFactor
	}
	if now.Sub(m.at) < rest {
		return false
	}
	return short || disk-m.disk >= int64(room)/2 || now.Sub(m.at) >= latest
}

func (m *measurement) take(b Bounded, pids []int, now time.Time, disk int64) {
	m.used, m.files, m.deep = sizeOf(b.Path)
	if b.Tmp != "" {
		used, files, deep := sizeOf(b.Tmp)
		m.used, m.files, m.deep = m.used+used, m.files+files, m.deep || deep
	}
	m.logs = filesIn(b.Log)
	m.held.take(pids, b.Path)
	m.at, m.disk = now, disk
	m.took = time.Since(now)
}

func (m *measurement) bytes() job.Size { return m.used + m.logs + m.held.size }

func (m *measurement) allFiles() int64 { return m.files + m.held.files }

// holding is what the tasks of one user hold.
type holding struct {
	bytes   job.Size
	files   int64
	bound   job.Size
	most    *Bounded // its task that holds most
	largest int64    // what that task holds
}

// Measure measures the tasks that may hold too much, and returns those that have to end, and when to measure again. All
// of them lie on the disk of the directory parent. It forgets tasks that are not in all.
func (m *Meter) Measure(parent string, all []Bounded, now time.Time) ([]Over, time.Duration) {
	d, err := readDisk(parent)
	if err != nil {
		return nil, lookMost // the next call tries again
	}
	m.parent = parent
	m.remeasure(all, now, d)
	var over []Over
	for i := range all {
		b, is := &all[i], m.last[all[i].Attempt]
		switch {
		case b.Ending:
		case b.Bound > 0 && is.used > b.Bound:
			over = append(over, Over{Attempt: b.Attempt, Why: fmt.Sprintf("scratch quota of %s exceeded: %s used", b.Bound, is.used)})
			b.Ending = true
		case is.deep:
			over = append(over, Over{Attempt: b.Attempt, Why: fmt.Sprintf("its scratch directory or its /tmp is over %d directories deep", maxDepth)})
			b.Ending = true
		}
	}
	over = append(over, m.overUser(all)...)
	if o := m.overDisk(all, now, d); o != nil {
		over = append(over, *o)
	}
	return over, d.pause()
}

// remeasure measures the tasks that are due.
func (m *Meter) remeasure(all []Bounded, now time.Time, d disk) {
	before := m.last
	m.last = make(map[job.Attempt]*measurement, len(all))
	used := map[string]job.Size{}
	for _, b := range all {
		is := before[b.Attempt]
		if is == nil {
			is = &measurement{at: now.Add(-latest)}
		}
		m.last[b.Attempt] = is
		used[b.User] += is.bytes()
	}
	for _, b := range all {
		is := m.last[b.Attempt]
		room := job.Size(d.avail)
		if b.Bound > 0 {
			room = min(room, b.Bound-is.used)
		}
		if b.UserBound > 0 {
			room = min(room, b.UserBound-used[b.User])
		}
		if is.due(now, d.used, room, d.short()) {
			var pids []int
			if m.Members != nil {
				pids = m.Members(b.Attempt)
			}
			is.take(b, pids, now, d.used)
		}
	}
}

// holdings adds up what the tasks of each user hold. By says what counts for the largest task.
func (m *Meter) holdings(all []Bounded, by func(*measurement) int64) map[string]*holding {
	users := map[string]*holding{}
	for i := range all {
		b := &all[i]
		u, is := users[b.User], m.last[b.Attempt]
		if u == nil {
			u = &holding{}
			users[b.User] = u
		}
		u.bound = b.UserBound
		u.bytes += is.bytes()
		u.files += is.allFiles()
		if n := by(is); u.most == nil || n > u.largest {
			u.most, u.largest = b, n
		}
	}
	return users
}

// entryBytes counts for each file besides its content when the disk is full. Some file systems keep files with their data,
// and a million empty ones use them up.
const entryBytes = 512

func bytesOf(is *measurement) int64 { return int64(is.bytes()) + is.allFiles()*entryBytes }
func filesOf(is *measurement) int64 { return is.allFiles() }

// overUser returns the largest task of each user whose tasks hold more than they may, not counting those that end for it
// already.
func (m *Meter) overUser(all []Bounded) (over []Over) {
	rest := slices.DeleteFunc(slices.Clone(all), func(b Bounded) bool { return b.Ending })
	for name, u := range m.holdings(rest, bytesOf) {
		if u.bound > 0 && u.bytes > u.bound {
			over = append(over, Over{Attempt: u.most.Attempt, Why: fmt.Sprintf("scratch quota: the tasks of user %s hold %s of %s on this host, this one %s of it",
				name, u.bytes, u.bound, m.last[u.most.Attempt].bytes())})
		}
	}
	return over
}

// overDisk returns the task to end because the disk is nearly full: the largest of the user who holds most, and more
// than an equal share. Nobody else's task ends for it.
func (m *Meter) overDisk(all []Bounded, now time.Time, d disk) *Over {
	if !d.short() {
		m.victim = nil
		return nil
	}
	if now.Before(m.wait) && slices.ContainsFunc(m.victim, holdsSome) {
		return nil // they are being removed
	}
	m.victim = nil
	if d.avail >= d.floor { // files are short, not bytes
		name, u, _ := most(m.holdings(all, filesOf), nil, func(u *holding) int64 { return u.files })
		if u == nil || u.files < d.files/minShare {
			return nil
		}
		return m.end(u, now, fmt.Sprintf("the file system of this host has no room for more files: user %s holds most, %d of %d, this task %d of them", name, u.files, d.files, u.largest))
	}
	users := m.holdings(all, bytesOf)
	kept := m.kept.read(m.parent, now)
	name, u, total := most(users, kept, func(u *holding) int64 { return int64(u.bytes) + u.files*entryBytes })
	held := int64(kept[name])
	if u != nil {
		held += int64(u.bytes) + u.files*entryBytes
	}
	parties := int64(len(users) + 1)
	for other := range kept {
		if users[other] == nil {
			parties++
		}
	}
	share := (d.avail + total) / parties
	if u == nil || held <= share || held < d.total/minShare {
		return nil
	}
	return m.end(u, now, fmt.Sprintf("the disk of this host is full: user %s holds most of it, %s of %s, this task %s of it", name, u.bytes+kept[name], job.Size(d.total), m.last[u.most.Attempt].bytes()))
}

// minShare says when a user has not filled the disk: if he holds less than 1/minShare of it.
const minShare = 20

// most returns the user who holds most, and what all users hold together.
func most(users map[string]*holding, kept map[string]job.Size, by func(*holding) int64) (name string, u *holding, total int64) {
	held := map[string]int64{}
	for n, x := range users {
		held[n] += by(x)
	}
	for n, bytes := range kept {
		held[n] += int64(bytes)
	}
	first := true
	for n, x := range held {
		total += x
		if first || x > held[name] || x == held[name] && n < name {
			name, first = n, false
		}
	}
	return name, users[name], total
}

func (m *Meter) end(u *holding, now time.Time, why string) *Over {
	m.victim, m.wait = []string{u.most.Path, u.most.Tmp}, now.Add(clearMost)
	return &Over{Attempt: u.most.Attempt, Why: why, Full: true}
}

// holdsSome reports whether there is something in a directory. An empty one may serve another task.
func holdsSome(path string) bool {
	dir, err := openIn(unix.AT_FDCWD, path)
	if err != nil {
		return false
	}
	defer dir.Close()
	names, err := dir.Readdirnames(1)
	return err == nil && len(names) > 0
}

// disk is one answer of a file system.
type disk struct {
	total, used, avail, floor int64 // bytes
	files, freeFiles          int64 // 0, 0: it has no bound on files
	floorFiles                int64
}

const (
	// floorShare is the part of a file system below which it is nearly full, but at least floorLeast and at most
	// floorMost. It is more than what the daemon keeps for itself.
	floorShare      = 32
	floorLeast      = 16 << 20
	floorMost       = 1 << 30
	floorFilesShare = 50
	floorFilesMost  = 1 << 14
)

func readDisk(path string) (disk, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return disk{}, err
	}
	d := disk{
		total: int64(fs.Blocks) * fs.Bsize, avail: int64(fs.Bavail) * fs.Bsize, used: int64(fs.Blocks-fs.Bfree) * fs.Bsize, //nolint:gosec // no disk has 2^63 bytes
		files: int64(fs.Files), freeFiles: int64(fs.Ffree), //nolint:gosec // nor files
	}
	d.floor = min(max(d.total/floorShare, floorLeast), floorMost)
	d.floorFiles = min(d.files/floorFilesShare, floorFilesMost)
	return d, nil
}

// short reports whether the disk is nearly full.
func (d disk) short() bool { return d.avail < d.floor || d.freeFiles < d.floorFiles }

// Pause returns for how long the disk of a directory cannot become full.
func Pause(path string) time.Duration {
	d, err := readDisk(path)
	if err != nil {
		return lookMost
	}
	return d.pause()
}

// pause returns for how long the disk cannot become full.
func (d disk) pause() time.Duration {
	p := time.Duration(float64(max(0, d.avail-d.floor)) / fastestBytes * float64(time.Second))
	if d.files > 0 {
		p = min(p, time.Duration(float64(max(0, d.freeFiles-d.floorFiles))/fastestFiles*float64(time.Second)))
	}
	return min(max(p, lookLeast), lookMost)
}
