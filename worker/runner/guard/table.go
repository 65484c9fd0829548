package guard

// The table of leases: memory that a runner, its guard and the daemon share.

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// Entry is one task in a table.
type Entry struct {
	Attempt job.Attempt
	Group   string // directory of the control group that holds its processes; empty: it has none
	// PID is that of the first process of its PID namespace, or without one of its main process. 0: there is neither yet.
	PID   int
	Ticks uint64 // start of that process, in ticks since boot
	// Deadline is a reading of CLOCK_BOOTTIME. Never is for a task without a lease.
	Deadline time.Duration
	Skew     time.Duration // the wall clock minus CLOCK_BOOTTIME at which Deadline is right
}

// Making is the PID of an entry whose main process is being made, and has no PID namespace.
const Making = -1

// Never is the deadline of a task that no lease ends.
const Never time.Duration = math.MaxInt64

// The layout of a table: slots of one size, the first of which only counts the slots that were ever used. A slot is free
// as long as its deadline is 0. The runner alone takes and frees slots; runner and daemon move deadlines later.
const (
	slotBytes  = 512
	maxSlots   = 1 << 14
	nameBytes  = 64
	atDeadline = 0
	atSkew     = 8
	atPID      = 16
	atTicks    = 24
	atName     = 32
	atGroup    = atName + nameBytes
	groupBytes = atKilled - atGroup
	atKilled   = slotBytes - 8
	memoryName = "muster-leases"
)

// ErrFull says that no slot is free, or that a name is too long for one. The task is not guarded.
var ErrFull = errors.New("guard: no room in the table of leases")

// Table is a mapped table. A runner makes one, other processes open it.
type Table struct {
	mem  []byte
	file *os.File // in the process that made it
	free []int    // slots that were used before; only in the runner
}

// New makes an empty table. Its memory is allocated as slots are used, and nobody can make it shorter: a process that has
// it mapped would die.
func New() (*Table, error) {
	fd, err := unix.MemfdCreate(memoryName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("guard: make the table of leases: %w", err)
	}
	err = unix.Ftruncate(fd, maxSlots*slotBytes)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		_ = unix.Close(fd) // nothing was written to it
		return nil, fmt.Errorf("guard: make the table of leases: %w", err)
	}
	t, err := mapped(fd)
	if err != nil {
		_ = unix.Close(fd) // nothing was written to it
		return nil, err
	}
	t.file = os.NewFile(uintptr(fd), memoryName)
	return t, nil
}

// File is the table in the process that made it. Others open it by its descriptor, or inherit it.
func (t *Table) File() *os.File { return t.file }

// InheritedFD is the descriptor by which a guard gets the table of its runner.
const InheritedFD = 3

// Inherited maps the table that this process has inherited as InheritedFD.
func Inherited() (*Table, error) {
	return open(protocol.Info{PID: os.Getpid(), Leases: InheritedFD})
}

// Open opens the table of a living runner.
func Open(info protocol.Info) (*Table, error) {
	if info.Leases <= 0 {
		return nil, fmt.Errorf("guard: runner %d has no table of leases", info.Generation)
	}
	return open(info)
}

func open(info protocol.Info) (*Table, error) {
	path := "/proc/" + strconv.Itoa(info.PID) + "/fd/" + strconv.Itoa(info.Leases)
	if to, err := os.Readlink(path); err != nil || !strings.HasPrefix(to, "/memfd:"+memoryName) {
		return nil, fmt.Errorf("guard: open the table of leases of runner %d: process %d has none (%s)", info.Generation, info.PID, to)
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("guard: open the table of leases of runner %d: %w", info.Generation, err)
	}
	defer unix.Close(fd) //nolint:errcheck // the mapping stays
	return mapped(fd)
}

func mapped(fd int) (*Table, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("guard: map the table of leases: %w", err)
	}
	if st.Size != maxSlots*slotBytes {
		return nil, fmt.Errorf("guard: map the table of leases: %d bytes, want %d", st.Size, maxSlots*slotBytes)
	}
	mem, err := unix.Mmap(fd, 0, maxSlots*slotBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("guard: map the table of leases: %w", err)
	}
	return &Table{mem: mem}, nil
}

// Close unmaps the table.
func (t *Table) Close() {
	_ = unix.Munmap(t.mem) // it is ours and was not unmapped before
	if t.file != nil {
		_ = t.file.Close() // nothing was written to it
	}
}

// word is a number in a slot.
func (t *Table) word(slot, at int) *int64 {
	return (*int64)(unsafe.Pointer(&t.mem[slot*slotBytes+at])) //nolint:gosec // aligned, and within the mapping
}

func (t *Table) text(slot, at, n int) []byte {
	b := t.mem[slot*slotBytes+at : slot*slotBytes+at+n]
	if end := bytes.IndexByte(b, 0); end >= 0 {
		b = b[:end]
	}
	return b
}

// used returns how many slots were ever used, including the first.
func (t *Table) used() int { return int(min(max(1, atomic.LoadInt64(t.word(0, 0))), maxSlots)) }

// Put takes a slot for a task and returns it. Only the runner calls it.
func (t *Table) Put(e Entry) (slot int, err error) {
	name := e.Attempt.String()
	if len(name) >= nameBytes || len(e.Group) >= groupBytes || e.Deadline <= 0 {
		return 0, ErrFull
	}
	if n := len(t.free); n > 0 {
		slot, t.free = t.free[n-1], t.free[:n-1]
	} else {
		if slot = t.used(); slot == maxSlots {
			return 0, ErrFull
		}
		atomic.StoreInt64(t.word(0, 0), int64(slot+1))
	}
	clear(t.mem[slot*slotBytes+atName : (slot+1)*slotBytes])
	copy(t.mem[slot*slotBytes+atName:], name)
	atomic.StoreInt64(t.word(slot, atPID), 0)
	_ = t.SetProcess(slot, e.PID, e.Ticks, e.Group) // its length was checked
	atomic.StoreInt64(t.word(slot, atSkew), int64(e.Skew))
	atomic.StoreInt64(t.word(slot, atDeadline), int64(e.Deadline)) // last: now the slot counts
	return slot, nil
}

// SetProcess says which process a slot is about, as in Entry. Only the runner calls it, from any goroutine.
func (t *Table) SetProcess(slot, pid int, ticks uint64, group string) error {
	if len(group) >= groupBytes {
		return ErrFull
	}
	copy(t.mem[slot*slotBytes+atGroup:], group)
	atomic.StoreInt64(t.word(slot, atTicks), int64(ticks)) //nolint:gosec // ticks since boot
	atomic.StoreInt64(t.word(slot, atPID), int64(pid))     // last: now others read the rest
	return nil
}

// Over reports whether the deadline of a slot has passed, by CLOCK_BOOTTIME. It may move later until then.
func (t *Table) Over(slot int, now time.Duration) bool {
	return now >= time.Duration(atomic.LoadInt64(t.word(slot, atDeadline)))
}

// Free frees a slot. Only the runner calls it.
func (t *Table) Free(slot int) {
	atomic.StoreInt64(t.word(slot, atDeadline), 0)
	t.free = append(t.free, slot)
}

// Extend moves the deadline of a slot later.
func (t *Table) Extend(slot int, deadline, skew time.Duration) {
	for {
		old := atomic.LoadInt64(t.word(slot, atDeadline))
		if old == 0 || old >= int64(deadline) {
			return
		}
		atomic.StoreInt64(t.word(slot, atSkew), int64(skew))
		if atomic.CompareAndSwapInt64(t.word(slot, atDeadline), old, int64(deadline)) {
			return
		}
	}
}

// MarkKilled notes that a task is about to be killed in place of its runner.
func (t *Table) MarkKilled(a job.Attempt) {
	for slot, name := 1, a.String(); slot < t.used(); slot++ {
		if atomic.LoadInt64(t.word(slot, atDeadline)) != 0 && string(t.text(slot, atName, nameBytes)) == name {
			atomic.StoreInt64(t.word(slot, atKilled), 1)
		}
	}
}

// Killed reports whether any process has called MarkKilled for the task of a slot.
func (t *Table) Killed(slot int) bool { return atomic.LoadInt64(t.word(slot, atKilled)) != 0 }

// Extension is a later deadline of a task, as in Entry.
type Extension struct{ Deadline, Skew time.Duration }

// ExtendAll moves the deadlines of tasks later, by the names of their attempts.
func (t *Table) ExtendAll(all map[string]Extension) {
	for slot := 1; slot < t.used(); slot++ {
		if atomic.LoadInt64(t.word(slot, atDeadline)) == 0 {
			continue
		}
		if x, ok := all[string(t.text(slot, atName, nameBytes))]; ok {
			t.Extend(slot, x.Deadline, x.Skew)
		}
	}
}

// get reads a slot. It returns false if the slot is free, or changes hands meanwhile.
func (t *Table) get(slot int) (Entry, bool) {
	deadline := atomic.LoadInt64(t.word(slot, atDeadline))
	if deadline == 0 {
		return Entry{}, false
	}
	a, err := job.ParseAttempt(string(t.text(slot, atName, nameBytes)))
	e := Entry{
		Attempt: a, PID: int(atomic.LoadInt64(t.word(slot, atPID))),
		Skew: time.Duration(atomic.LoadInt64(t.word(slot, atSkew))), Deadline: time.Duration(deadline),
	}
	if e.PID != 0 { // SetProcess writes the PID last, so it is read first
		e.Group, e.Ticks = string(t.text(slot, atGroup, groupBytes)), uint64(atomic.LoadInt64(t.word(slot, atTicks))) //nolint:gosec // as in SetProcess
	}
	return e, err == nil && atomic.LoadInt64(t.word(slot, atDeadline)) == deadline
}
