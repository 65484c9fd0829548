package job

// Names of jobs, tasks and attempts, and what can be read off them.

import (
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// Peer is the libp2p peer id of a daemon in its text form. Only p2p and dht
// know more about it than that two equal strings are one daemon.
type Peer string

// Short is the end of the id, enough to tell the hosts of a cluster apart.
func (p Peer) Short() string {
	if len(p) <= 8 {
		return string(p)
	}
	return string(p[len(p)-8:])
}

// Group names a journal group: the daemons that keep the record of the jobs
// that one daemon accepted.
type Group uint64

// alphabet is Crockford's base 32 in lower case: no i, l, o or u to misread.
const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

var encoding = base32.NewEncoding(alphabet).WithPadding(base32.NoPadding)

const (
	groupChars  = 13                             // 64 bits in base 32
	uniqueChars = 10                             // 50 bits, drawn by the daemon that accepts
	idChars     = uniqueChars + 1 + groupChars   // "k3v9x0q2mz-0a1b2c3d4e5f6"
	uniqueMask  = uint64(1)<<(5*uniqueChars) - 1 // the bits of a drawn number that an id shows
)

// String is the group in 13 letters of base 32.
func (g Group) String() string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(g))
	return encoding.EncodeToString(b[:])
}

// ParseGroup reads what Group.String wrote.
func ParseGroup(s string) (Group, error) {
	b, err := encoding.DecodeString(s)
	if err != nil || len(s) != groupChars || len(b) != 8 || Group(binary.BigEndian.Uint64(b)).String() != s {
		return 0, fmt.Errorf("group id %.40q: want %d letters of %s", s, groupChars, alphabet)
	}
	return Group(binary.BigEndian.Uint64(b)), nil
}

// IDBytes is the length of every job id.
const IDBytes = idChars

// ID names a job in its cluster for ever: ten drawn letters, a dash, and the
// group that keeps it. The drawn letters come first so that a short prefix is
// enough for people.
type ID string

// NewID makes the id of a job of group g from 50 bits of drawn.
func NewID(g Group, drawn uint64) ID {
	drawn &= uniqueMask
	var u [uniqueChars]byte
	for i := uniqueChars - 1; i >= 0; i-- {
		u[i] = alphabet[drawn&31]
		drawn >>= 5
	}
	return ID(string(u[:]) + "-" + g.String())
}

// ParseID checks a whole id; a prefix is not one.
func ParseID(s string) (ID, error) {
	if len(s) != idChars || s[uniqueChars] != '-' || strings.Trim(s[:uniqueChars], alphabet) != "" {
		return "", fmt.Errorf("job id %.40q: want %d letters, a dash and %d letters", s, uniqueChars, groupChars)
	}
	if _, err := ParseGroup(s[uniqueChars+1:]); err != nil {
		return "", fmt.Errorf("job id %.40q: %w", s, err)
	}
	return ID(s), nil
}

// Group is the journal group that keeps the job; zero for what is no id.
func (id ID) Group() Group {
	if len(id) != idChars {
		return 0
	}
	g, err := ParseGroup(string(id[uniqueChars+1:]))
	if err != nil {
		return 0
	}
	return g
}

// Drawn are the 50 bits that the id was made from; zero for what is no id.
func (id ID) Drawn() uint64 {
	if len(id) != idChars {
		return 0
	}
	lowest, _, _ := DrawnWith(string(id[:uniqueChars]))
	return lowest
}

// DrawnWith bounds the drawn bits of the ids that begin with a prefix, of which
// only the drawn letters are looked at; ok is false if no id begins so.
func DrawnWith(prefix string) (lowest, highest uint64, ok bool) {
	for i := range uniqueChars {
		low, high := 0, len(alphabet)-1
		if i < len(prefix) {
			low = strings.IndexByte(alphabet, prefix[i])
			high = low
		}
		if low < 0 {
			return 0, 0, false
		}
		lowest, highest = lowest<<5|uint64(low), highest<<5|uint64(high)
	}
	return lowest, highest, true
}

// Attempt names one try at one task: its number never comes again, whatever
// becomes of the daemons that know of it.
type Attempt struct {
	Job  ID
	Task int // index in the job, from 0
	N    int // from 1
}

// String is "JOB.TASK.N", fit for a file name.
func (a Attempt) String() string {
	return string(a.Job) + "." + strconv.Itoa(a.Task) + "." + strconv.Itoa(a.N)
}

// ParseAttempt reads what Attempt.String wrote.
func ParseAttempt(s string) (Attempt, error) {
	parts := strings.Split(s, ".")
	if len(parts) == 3 {
		id, err := ParseID(parts[0])
		task, err1 := strconv.Atoi(parts[1])
		n, err2 := strconv.Atoi(parts[2])
		a := Attempt{Job: id, Task: task, N: n}
		if err == nil && err1 == nil && err2 == nil && a.Valid() == nil && a.String() == s {
			return a, nil
		}
	}
	return Attempt{}, fmt.Errorf("attempt %.60q: want JOB.TASK.NUMBER", s)
}

// Valid says whether the parts are in range.
func (a Attempt) Valid() error {
	if _, err := ParseID(string(a.Job)); err != nil {
		return err
	}
	if a.Task < 0 || a.Task >= MaxTasks || a.N < 1 || a.N > MaxAttempts {
		return fmt.Errorf("attempt %s: task or number out of range", a)
	}
	return nil
}

const (
	// MaxTasks bounds the tasks of one job (an array of a million).
	MaxTasks = 1_000_000
	// MaxAttempts bounds attempt numbers, which also count declined offers.
	MaxAttempts = 1 << 30
)
