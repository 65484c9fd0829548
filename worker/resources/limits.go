package resources

// Limits: the settings for what a user may hold of this host, and the highest priorities.

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// Limits bounds what each user may hold on this host at a time. The zero value sets no bounds.
type Limits struct {
	PerUser contract.Limit
	Users   map[string]contract.Limit // by user; each quantity here overrides that of PerUser
	All     contract.Limit            // of all users together; it bounds only what waits
	// PerMember and Members bound the priority of the offers of other daemons, and nothing else; Members by peer id.
	PerMember contract.Limit
	Members   map[string]contract.Limit
}

// amount is what the bound of a quantity may be.
type amount struct {
	size  bool // such as 64GiB; then it has no highest value
	time  bool // such as 24h, and counted in seconds
	least int64
	most  int64
	want  string
}

var (
	someNumber = amount{most: math.MaxInt32, want: "a number of 0 or more"}
	someSize   = amount{size: true, want: "0 or more"}
	// No task runs without a byte on disk, and runners take 0 for no limit.
	someScratch  = amount{size: true, least: 1, want: "more than 0"}
	someTime     = amount{time: true, least: 1, most: int64(job.MaxTimeLimit / time.Second), want: "a time from 1s to " + job.Duration(job.MaxTimeLimit).String() + ", such as 24h"}
	somePriority = amount{most: job.MaxPriority, want: fmt.Sprintf("a priority from 0 to %d", job.MaxPriority)}
)

var amounts = map[contract.Quantity]amount{
	contract.LimitCPUs: someNumber, contract.LimitGPUs: someNumber, contract.LimitTasks: someNumber, contract.LimitPendingJobs: someNumber,
	contract.LimitMemory: someSize, contract.LimitScratch: someScratch, contract.LimitPendingBytes: someSize,
	contract.LimitPriority: somePriority, contract.LimitTime: someTime,
	contract.LimitClusterCPUs: someNumber, contract.LimitClusterGPUs: someNumber, contract.LimitClusterTasks: someNumber, contract.LimitClusterMemory: someSize,
}

const (
	perUser    = "per_user"
	usersDot   = "users."
	allUsers   = "all"
	perMember  = "per_member"
	membersDot = "members."
	limitUsage = "want per_user.WHAT or users.NAME.WHAT, where WHAT is cpus, gpus, memory, scratch, tasks, cluster_cpus, cluster_gpus, cluster_memory, cluster_tasks, max_time, priority, pending_jobs or pending_bytes; all.pending_jobs or all.pending_bytes; or per_member.priority or members.PEER.priority"
)

// ParseLimits parses limits as they are in a configuration file: per_user.gpus = 4, users.ada.memory = 64GiB.
func ParseLimits(settings map[string]string) (Limits, error) {
	l := Limits{PerUser: contract.Limit{}, Users: map[string]contract.Limit{}, All: contract.Limit{}, PerMember: contract.Limit{}, Members: map[string]contract.Limit{}}
	of := func(all map[string]contract.Limit, who string) contract.Limit {
		if all[who] == nil {
			all[who] = contract.Limit{}
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
func parseLimit(name, text string) (kind, who string, q contract.Quantity, value int64, err error) {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return "", "", "", 0, fmt.Errorf("%.80q: %s", name, limitUsage)
	}
	kind, who = holderOf(name[:dot])
	q = contract.Quantity(name[dot+1:])
	a, known := amounts[q]
	pending := q == contract.LimitPendingJobs || q == contract.LimitPendingBytes
	switch {
	case known && (kind == perUser || kind == usersDot || kind == allUsers && pending):
	case (kind == perMember || kind == membersDot) && q == contract.LimitPriority:
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
	if a.time {
		d, err := job.ParseDuration(text)
		n := int64(d.D() / time.Second)
		if err != nil || n < a.least || d.D() > job.MaxTimeLimit {
			return 0, fmt.Errorf("%.40q: want %s", text, a.want)
		}
		return n, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 || n > a.most {
		return 0, fmt.Errorf("%.40q: want %s", text, a.want)
	}
	return n, nil
}

// Priorities returns the highest priorities by these limits. The operators are users who may have any priority unless they
// are named; unproved is that of contract.Priorities.
func (l Limits) Priorities(operators []string, unproved bool) *contract.Priorities {
	of := func(l contract.Limit, usual int) int {
		if n, set := l[contract.LimitPriority]; set {
			return int(n)
		}
		return usual
	}
	p := &contract.Priorities{
		PerUser: of(l.PerUser, contract.UserPriority), Users: map[string]int{}, Operators: operators, Unproved: unproved,
		PerMember: of(l.PerMember, job.MaxPriority), Members: map[job.Peer]int{},
	}
	for name, own := range l.Users {
		if n, set := own[contract.LimitPriority]; set {
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
	own := contract.UserLimits{PerUser: l.PerUser, Users: l.Users}
	most, _, limited := own.Most(user, contract.LimitScratch)
	return job.Size(most), limited
}

// Announced returns what schedulers are told of the limits. An operator is named with the priority that he may have, unless
// any member may name him.
func (l Limits) Announced(p *contract.Priorities) *contract.UserLimits {
	out := &contract.UserLimits{PerUser: announcedOf(l.PerUser), Users: map[string]contract.Limit{}}
	for name, own := range l.Users {
		if own = announcedOf(own); len(own) > 0 {
			out.Users[name] = own
		}
	}
	if p != nil {
		out.PerUser[contract.LimitPriority] = int64(p.PerUser)
		for _, name := range p.Operators {
			if _, named := p.Users[name]; named || p.Unproved {
				continue
			}
			if out.Users[name] == nil {
				out.Users[name] = contract.Limit{}
			}
			out.Users[name][contract.LimitPriority] = job.MaxPriority
		}
	}
	if len(out.PerUser) == 0 && len(out.Users) == 0 {
		return nil
	}
	return out.Bounded()
}

// announcedOf returns the quantities that concern the placement of tasks.
func announcedOf(l contract.Limit) contract.Limit {
	out := contract.Limit{}
	for _, q := range append(slices.Clone(contract.HeldQuantities), contract.LimitPriority, contract.LimitTime) {
		if most, set := l[q]; set {
			out[q] = most
		}
	}
	return out
}
