package worker

// Quotas: how much of this host a user may hold at a time.

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// Limits bounds what each user may hold on this host at a time. The zero value sets no bounds.
type Limits struct {
	PerUser Limit
	Users   map[string]Limit // by user; each quantity here overrides that of PerUser
	All     Limit            // of all users together; only what waits
	// PerMember and Members bound the priority of the offers of other daemons, and nothing else; Members by peer id.
	PerMember Limit
	Members   map[string]Limit
}

// Limit bounds some quantities. A quantity that is not in the map is not bounded.
type Limit map[Quantity]int64

// Quantity is something that can be bounded.
type Quantity string

// The quantities. Memory is in bytes. A share of a GPU counts as that part of a GPU.
const (
	LimitCPUs   Quantity = "cpus"
	LimitGPUs   Quantity = "gpus"
	LimitMemory Quantity = "memory"
	LimitTasks  Quantity = "tasks"
)

// LimitScratch is what the tasks of a user hold on the disk of the data directory, in bytes. No task requests it: the runner
// measures it, and ends tasks of a user who holds more.
const LimitScratch Quantity = "scratch"

// The quantities of what waits for a host. The scheduler of the daemon bounds them, not the worker.
const (
	LimitPendingJobs  Quantity = "pending_jobs"
	LimitPendingBytes Quantity = "pending_bytes" // of job files
)

// LimitPriority is the highest priority of tasks; see lease.Priorities.
const LimitPriority Quantity = "priority"

// amount is what the bound of a quantity may be.
type amount struct {
	size  bool // such as 64GiB; then it has no highest value
	least int64
	most  int64
	want  string
}

var (
	someNumber = amount{most: math.MaxInt32, want: "a number of 0 or more"}
	someSize   = amount{size: true, want: "0 or more"}
	// No task runs without a byte on disk, and runners take 0 for no limit.
	someScratch  = amount{size: true, least: 1, want: "more than 0"}
	somePriority = amount{most: job.MaxPriority, want: fmt.Sprintf("a priority from 0 to %d", job.MaxPriority)}
)

var amounts = map[Quantity]amount{
	LimitCPUs: someNumber, LimitGPUs: someNumber, LimitTasks: someNumber, LimitPendingJobs: someNumber,
	LimitMemory: someSize, LimitScratch: someScratch, LimitPendingBytes: someSize,
	LimitPriority: somePriority,
}

// quantities lists the quantities in the order in which they are checked.
var quantities = []Quantity{LimitTasks, LimitGPUs, LimitCPUs, LimitMemory}

const (
	perUser    = "per_user"
	usersDot   = "users."
	allUsers   = "all"
	perMember  = "per_member"
	membersDot = "members."
	limitUsage = "want per_user.WHAT or users.NAME.WHAT, where WHAT is cpus, gpus, memory, scratch, tasks, priority, pending_jobs or pending_bytes; all.pending_jobs or all.pending_bytes; or per_member.priority or members.PEER.priority"
)

// ParseLimits parses limits as they are in a configuration file: per_user.gpus = 4, users.ada.memory = 64GiB.
func ParseLimits(settings map[string]string) (Limits, error) {
	l := Limits{PerUser: Limit{}, Users: map[string]Limit{}, All: Limit{}, PerMember: Limit{}, Members: map[string]Limit{}}
	of := func(all map[string]Limit, who string) Limit {
		if all[who] == nil {
			all[who] = Limit{}
		}
		return all[who]
	}
	for name, text := range settings {
		kind, who, q, value, err := parseLimit(name, text)
		if err != nil {
			return Limits{}, err
		}
		switch kind {
		case perUser:
			l.PerUser[q] = value
		case usersDot:
			of(l.Users, who)[q] = value
		case allUsers:
			l.All[q] = value
		case perMember:
			l.PerMember[q] = value
		case membersDot:
			of(l.Members, who)[q] = value
		}
	}
	return l, nil
}

// CheckLimit returns an error if a limit is not valid.
func CheckLimit(name, text string) error {
	_, _, _, _, err := parseLimit(name, text)
	return err
}

// parseLimit returns for which kind of holder the limit is, and who that is if one is named.
func parseLimit(name, text string) (kind, who string, q Quantity, value int64, err error) {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return "", "", "", 0, fmt.Errorf("%.80q: %s", name, limitUsage)
	}
	kind, who = holderOf(name[:dot])
	q = Quantity(name[dot+1:])
	a, known := amounts[q]
	pending := q == LimitPendingJobs || q == LimitPendingBytes
	switch {
	case known && (kind == perUser || kind == usersDot || kind == allUsers && pending):
	case (kind == perMember || kind == membersDot) && q == LimitPriority:
	default:
		return "", "", "", 0, fmt.Errorf("%.80q: %s", name, limitUsage)
	}
	if value, err = a.parse(text); err != nil {
		return "", "", "", 0, fmt.Errorf("%s: %w", name, err)
	}
	return kind, who, q, value, nil
}

// holderOf returns the kind of holder that a limit names before its quantity, and who that is if one is named.
func holderOf(text string) (kind, who string) {
	if strings.HasSuffix(text, ".") { // nobody is named
		return "", ""
	}
	for _, named := range []string{usersDot, membersDot} {
		if who, found := strings.CutPrefix(text, named); found {
			return named, who
		}
	}
	return text, ""
}

// parse returns the bound that a text says.
func (a *amount) parse(text string) (int64, error) {
	if a.size {
		size, err := job.ParseSize(text)
		if err == nil && int64(size) < a.least {
			err = errors.New("want " + a.want)
		}
		return int64(size), err
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 || n > a.most {
		return 0, fmt.Errorf("%.40q: want %s", text, a.want)
	}
	return n, nil
}

// Priorities returns the highest priorities by these limits. The operators are users who may have any priority unless they
// are named; unproved is that of lease.Priorities.
func (l Limits) Priorities(operators []string, unproved bool) *lease.Priorities {
	of := func(l Limit, usual int) int {
		if n, set := l[LimitPriority]; set {
			return int(n)
		}
		return usual
	}
	p := &lease.Priorities{
		PerUser: of(l.PerUser, lease.UserPriority), Users: map[string]int{}, Operators: operators, Unproved: unproved,
		PerMember: of(l.PerMember, job.MaxPriority), Members: map[job.Peer]int{},
	}
	for name, own := range l.Users {
		if n, set := own[LimitPriority]; set {
			p.Users[name] = int(n)
		}
	}
	for id, own := range l.Members {
		p.Members[job.Peer(id)] = of(own, p.PerMember)
	}
	return p
}

// Scratch returns how many bytes of the disk the tasks of a user may hold, if that is limited.
func (l Limits) Scratch(user string) (job.Size, bool) {
	most, limited := l.of(user)[LimitScratch]
	return job.Size(most), limited
}

// of returns what a user may hold.
func (l Limits) of(user string) Limit {
	own, named := l.Users[user]
	if !named {
		return l.PerUser
	}
	out := maps.Clone(l.PerUser)
	if out == nil {
		out = Limit{}
	}
	maps.Copy(out, own)
	return out
}

// usage is what a user holds.
type usage struct {
	tasks, cpus int
	milli       int // of GPUs
	memory      job.Size
}

func (u *usage) add(need job.Resources, sign int) {
	u.tasks += sign
	u.cpus += sign * need.CPUs
	u.milli += sign * gpu.Count(need) * gpu.Milli(need)
	u.memory += job.Size(sign) * need.Memory
}

// quotas records what users hold here, what they may hold, and whose offers were declined for that.
type quotas struct {
	limits   Limits
	usage    map[string]usage // by user
	refusals refusals
}

func newQuotas(l Limits, timers *timerHeap, now *BootTime) quotas {
	return quotas{limits: l, usage: map[string]usage{}, refusals: newRefusals(timers, now)}
}

// use adds a need to the usage of a user, or with sign -1 subtracts it.
func (q *quotas) use(user string, need job.Resources, sign int) {
	if sign < 0 {
		q.refusals.notify(user)
	}
	q.shift(user, need, sign)
}

// shift is use for a moment: the usage changes back before anything else happens.
func (q *quotas) shift(user string, need job.Resources, sign int) {
	u := q.usage[user]
	u.add(need, sign)
	if u.tasks == 0 {
		delete(q.usage, user)
		return
	}
	q.usage[user] = u
}

// bounded reports whether the user has any limit.
func (q *quotas) bounded(user string) bool {
	limit := q.limits.of(user)
	return slices.ContainsFunc(quantities, func(what Quantity) bool { _, set := limit[what]; return set })
}

// over returns which limit the user would exceed with this need, for people, or "" if none.
func (q *quotas) over(user string, need job.Resources) string {
	limit := q.limits.of(user)
	if len(limit) == 0 {
		return ""
	}
	has := q.usage[user]
	with := has
	with.add(need, 1)
	for _, what := range quantities {
		most, bounded := limit[what]
		if !bounded {
			continue
		}
		over, holds, bound := false, "", strconv.FormatInt(most, 10)
		switch what {
		case LimitTasks:
			over, holds = int64(with.tasks) > most, strconv.Itoa(has.tasks)
		case LimitCPUs:
			over, holds = int64(with.cpus) > most, strconv.Itoa(has.cpus)
		case LimitGPUs:
			over, holds = int64(with.milli) > most*gpu.Whole, strconv.FormatFloat(float64(has.milli)/gpu.Whole, 'f', -1, 64)
		case LimitMemory:
			over, holds, bound = int64(with.memory) > most, has.memory.String(), job.Size(most).String()
		case LimitScratch, LimitPendingJobs, LimitPendingBytes, LimitPriority: // no amounts that tasks ask for
		}
		if over {
			return lease.Clip(fmt.Sprintf("user %s holds %s of at most %s %s on this host", user, holds, bound, what))
		}
	}
	return ""
}
