package contract

// The highest priority that a user's tasks may have, where they are accepted and where they run.
// See docs/adr, ADR 155.

import (
	"fmt"
	"maps"
	"slices"

	"github.com/musterhq/muster/job"
)

// UserPriority is the highest priority of users of whom nothing else is said. It is the default of jobs, so that nobody
// outranks those who ask for nothing.
const UserPriority = 50

// Priorities are the highest priorities that one daemon allows: where jobs are submitted and where offers arrive alike. Nil
// allows all.
type Priorities struct {
	PerUser   int
	Users     map[string]int // by user, instead of PerUser
	Operators []string       // users who may have any priority unless Users has them: root, and the daemon's own user
	// Unproved says that any member may name the operators in its offers, because tasks do not run as the users that they
	// name. Then only those of this daemon count.
	Unproved  bool
	PerMember int              // of the offers of each other daemon
	Members   map[job.Peer]int // by daemon, instead of PerMember
}

// Highest returns the highest priority that a user's jobs may have at this daemon, and the name of the setting.
func (p *Priorities) Highest(user string) (most int, setting string) {
	if p == nil {
		return job.MaxPriority, ""
	}
	if own, named := p.Users[user]; named {
		return own, "limits.users." + user + ".priority"
	}
	if slices.Contains(p.Operators, user) {
		return job.MaxPriority, ""
	}
	return p.PerUser, "limits.per_user.priority"
}

// Exceeds returns why a user's job may not have this priority here, or "" if it may.
func (p *Priorities) Exceeds(user string, priority int) string {
	most, setting := p.Highest(user)
	if priority <= most {
		return ""
	}
	return tooHigh(user, priority, most, setting)
}

// tooHigh is the reason of a priority above the highest.
func tooHigh(user string, priority, most int, setting string) string {
	return Clip(fmt.Sprintf("priority %d of user %s is above %d, the highest here (%s)", priority, user, most, setting))
}

// Declines returns why this host does not take an offer, or "" if it does. The offer is from another daemon, or from this
// host's own daemon if from is empty. An overdue task is allowed; see Overdue.
func (p *Priorities) Declines(from job.Peer, o *Offer) string {
	if p == nil {
		return ""
	}
	most, setting := p.Highest(o.User)
	if from != "" {
		if _, named := p.Users[o.User]; !named && p.Unproved && p.PerUser < most {
			most, setting = p.PerUser, "limits.per_user.priority"
		}
		if of, by := p.OfMember(from); of < most {
			most, setting = of, by
		}
	}
	if o.Precedence() <= Precedence(Overdue(most)) {
		return ""
	}
	return tooHigh(o.User, o.Priority, most, setting)
}

// OfMember returns the highest priority of the offers of another daemon, and the name of the setting.
func (p *Priorities) OfMember(from job.Peer) (most int, setting string) {
	if p == nil {
		return job.MaxPriority, ""
	}
	if own, named := p.Members[from]; named {
		return own, "limits.members." + string(from) + ".priority"
	}
	return p.PerMember, "limits.per_member.priority"
}

// Overdue returns the priority and the level of a task that goes before all others of the users who may have at most this
// priority, and after all of a higher one: the last level of the next priority. At the highest priority it is the first
// level.
func Overdue(most int) (priority, level int) {
	if most >= job.MaxPriority {
		return job.MaxPriority, 0
	}
	return most + 1, MaxLevel
}

// Equal reports whether two daemons, or one daemon before and after a change, allow the same.
func (p *Priorities) Equal(q *Priorities) bool {
	if p == nil || q == nil {
		return p == q
	}
	return p.PerUser == q.PerUser && p.PerMember == q.PerMember && p.Unproved == q.Unproved && maps.Equal(p.Users, q.Users) &&
		maps.Equal(p.Members, q.Members) && slices.Equal(p.Operators, q.Operators)
}
