package job

// Identifiers of daemons, journal groups, jobs and attempts.

import (
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// Peer is the libp2p peer ID of a daemon as text. Only packages p2p and dht interpret it; all others only compare it.
type Peer string

// Short returns the end of the ID, which is enough to tell the hosts of a cluster apart.
func (p Peer) Short() string {
	if len(p) <= 8 {
		return string(p)
	}
	return string(p[len(p)-8:])
}

// Group identifies a journal group: the daemons that keep the journal of the jobs that one daemon accepted.
type Group uint64

// alphabet is Crockford's base 32 in lower case. It leaves out i, l, o and u, which are easily misread.
const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

var encoding = base32.NewEncoding(alphabet).WithPadding(base32.NoPadding)

const (
	groupChars  = 13                             // 64 bits in base 32
	uniqueChars = 10                             // 50 random bits, drawn by the daemon that accepts the job
	idChars     = uniqueChars + 1 + groupChars   // "k3v9x0q2mz-0a1b2c3d4e5f6"
	uniqueMask  = uint64(1)<<(5*uniqueChars) - 1 // the bits of a random number that go into an ID
)

// String returns the group as 13 characters of base 32.
func (g Group) String() string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(g))
	return encoding.EncodeToString(b[:])
}

// ParseGroup parses the output of Group.String.
func ParseGroup(s string) (Group, error) {
	b, err := encoding.DecodeString(s)
	if err != nil || len(s) != groupChars || len(b) != 8 || Group(binary.BigEndian.Uint64(b)).String() != s {
		return 0, fmt.Errorf("group id %.40q: want %d characters of %s", s, groupChars, alphabet)
	}
	return Group(binary.BigEndian.Uint64(b)), nil
}

// IDBytes is the length of a job ID.
const IDBytes = idChars

// ID identifies a job in its cluster for ever: ten random characters, a dash, and the group that owns the job. The
// random characters come first so that users can type a short prefix: with the group first, all jobs of a daemon would
// begin alike, and with a time first, all jobs of a minute. The dot stays free for the number of a task, as in ID.3.
// The daemon that accepts a job draws again if it already has that ID.
type ID string

// NewID makes the ID of a job of group g from the low 50 bits of drawn, a random number.
func NewID(g Group, drawn uint64) ID {
	drawn &= uniqueMask
	var u [uniqueChars]byte
	for i := uniqueChars - 1; i >= 0; i-- {
		u[i] = alphabet[drawn&31]
		drawn >>= 5
	}
	return ID(string(u[:]) + "-" + g.String())
}

// ParseID parses a whole ID; it refuses a prefix.
func ParseID(s string) (ID, error) {
	if len(s) != idChars || s[uniqueChars] != '-' || strings.Trim(s[:uniqueChars], alphabet) != "" {
		return "", fmt.Errorf("job id %.40q: want %d characters, a dash and %d characters", s, uniqueChars, groupChars)
	}
	if _, err := ParseGroup(s[uniqueChars+1:]); err != nil {
		return "", fmt.Errorf("job id %.40q: %w", s, err)
	}
	return ID(s), nil
}

// Group returns the journal group that owns the job, or 0 if the ID is not valid.
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

// Drawn returns the 50 random bits that the ID was made from, or 0 if the ID is not valid.
func (id ID) Drawn() uint64 {
	if len(id) != idChars {
		return 0
	}
	lowest, _, _ := DrawnWith(string(id[:uniqueChars]))
	return lowest
}

// DrawnWith returns the range of random bits of the IDs that begin with prefix. It looks only at the random
// characters of the prefix. ok is false if no ID can begin with it.
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

// Attempt identifies one try at running a task. A number is never used twice, whatever happens to the daemons that
// know of it.
type Attempt struct {
	Job  ID
	Task int // index in the job, from 0
	N    int // from 1
}

// String returns "JOB.TASK.N", which is safe as a file name.
func (a Attempt) String() string {
	return string(a.Job) + "." + strconv.Itoa(a.Task) + "." + strconv.Itoa(a.N)
}

// ParseAttempt parses the output of Attempt.String.
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

// Valid returns an error if a part is out of range.
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
	// MaxTasks bounds the tasks of one job.
	MaxTasks = 1_000_000
	// MaxAttempts bounds attempt numbers. Declined offers use up numbers too.
	MaxAttempts = 1 << 30
)
