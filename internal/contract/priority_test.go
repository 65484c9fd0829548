package contract

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/job"
)

// Which priority a user may have, where jobs are submitted and where offers arrive, and which setting decides that.
func TestHighestPriorityOfEachUser(t *testing.T) {
	p := &Priorities{
		PerUser: 50, Users: map[string]int{"bea": 80, "eve": 10}, Operators: []string{Root, "own"},
		PerMember: 90, Members: map[job.Peer]int{"friend": 60},
	}
	for _, c := range []struct {
		user     string
		from     job.Peer // empty: this daemon
		unproved bool
		most     int
		setting  string
	}{
		{"ada", "", false, 50, "limits.per_user.priority"},
		{"ada", "other", false, 50, "limits.per_user.priority"},
		{"bea", "", false, 80, "limits.users.bea.priority"},
		{"bea", "other", false, 80, "limits.users.bea.priority"},
		{"bea", "friend", false, 60, "limits.members.friend.priority"},
		{"eve", "friend", false, 10, "limits.users.eve.priority"},
		{Root, "", false, 100, ""},
		{Root, "other", false, 90, "limits.per_member.priority"},
		{"own", "", false, 100, ""},
		{"own", "friend", false, 60, "limits.members.friend.priority"},
		{"own", "", true, 100, ""},
		{"own", "other", true, 50, "limits.per_user.priority"},
		{"bea", "other", true, 80, "limits.users.bea.priority"},
	} {
		p.Unproved = c.unproved
		declines := func(priority, level int) string {
			return p.Declines(c.from, &Offer{User: c.user, Priority: priority, Ordered: Ordered{Level: level}})
		}
		if why := declines(c.most, 0); why != "" {
			t.Errorf("%+v: the highest priority is declined: %s, want none", c, why)
		}
		if why := declines(Overdue(c.most)); why != "" {
			t.Errorf("%+v: an overdue task is declined: %s, want none", c, why)
		}
		if c.most < job.MaxPriority {
			if why := declines(c.most+1, MaxLevel-1); !strings.Contains(why, c.setting) || !strings.Contains(why, c.user) {
				t.Errorf("%+v: a higher one: %q, want %v in it and %v in it", c, why, c.setting, c.user)
			}
		}
		if c.from != "" {
			continue
		}
		if why := p.Exceeds(c.user, c.most); why != "" {
			t.Errorf("%+v: a job of the highest priority is refused: %s, want none", c, why)
		}
		if why := p.Exceeds(c.user, c.most+1); c.most < job.MaxPriority && !strings.Contains(why, c.setting) {
			t.Errorf("%+v: a job with a higher priority: %q, want the setting named", c, why)
		}
	}
	var none *Priorities
	if none.Exceeds("ada", 100) != "" || none.Declines("other", &Offer{User: "ada", Priority: 100}) != "" {
		t.Error("without limits a priority is refused")
	}
}

// An overdue task ranks before all tasks of users with the same highest priority, and after all with a higher one by
// age.
func TestOverdueStaysBelowHigherPriorities(t *testing.T) {
	for most := range job.MaxPriority {
		x := Precedence(Overdue(most))
		if x <= Precedence(most, 0) || x >= Precedence(most+1, 0) {
			t.Errorf("at most %d: precedence %d, want between %d and %d", most, x, Precedence(most, 0), Precedence(most+1, 0))
		}
	}
	if Precedence(Overdue(job.MaxPriority)) != MaxPrecedence {
		t.Error("an overdue task of the highest priority does not rank first")
	}
}
