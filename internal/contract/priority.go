package contract

// The highest priority that a user's tasks may have. It is checked where jobs are accepted and where tasks run.
// See docs/adr, ADR 155.

import (
	"fmt"
	"maps"
	"slices"

	"github.com/musterhq/muster/job"
)

// UserPriority is the highest priority of users without a setting of their own. It is also the default priority of
// jobs, so that nobody outranks users who ask for no priority.
const UserPriority = 50

// Priorities are the highest priorities that one daemon allows, both for submitted jobs and for offers that arrive. Nil
// allows all priorities.
type Priorities struct {
	PerUser   int
	Users     map[string]int // by user, instead of PerUser
	Operators []string       // users who may have any priority unless Users has them: root, and the daemon's own user
	// Unproved says that any member can name an operator as the user of its offers, because tasks do not run as the users
	// whom the offers name. Then operators have their privilege only in offers of this daemon.
	Unproved  bool
	PerMember int              // for the offers of each other daemon
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

// tooHigh returns the text for people that says why a priority is too high.
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

// Overdue returns the priority and the level of an overdue task of a user who may have at most this priority. Such a
// task goes before all other tasks of this priority and after all tasks of higher ones: it gets the last level of the
// next priority. At job.MaxPriority it gets the first level.
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
