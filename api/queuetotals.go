package api

// Totals of the queue: how long jobs have waited, and what each user has waiting and running. Daemons send each other
// counts, which can be added up; people are shown percentiles.

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/waittime"
)

// Bounds of users.
const (
	maxLoads      = 256 // users in a QueueInfo: those that hold most
	maxStatsUsers = 100 // users in the totals of the cluster
	maxLoad       = 1 << 30
)

// QueueInfo says how long the jobs of one daemon wait, and what each user's jobs hold.
type QueueInfo struct {
	Waited waittime.Counts `json:"waited" doc:"Of the jobs that started within the last hour."`
	Oldest *time.Time      `json:"oldest,omitempty" doc:"Since when the job waits that has waited longest."`
	Users  []UserLoad      `json:"users,omitempty" doc:"The users with the most GPUs, at most 256."`
	More   int             `json:"more,omitempty" doc:"Users that are left out."`
}

// UserLoad is what a user has now.
type UserLoad struct {
	User    string  `json:"user"`
	Running int     `json:"running" doc:"Tasks that are assigned to a node."`
	Pending int     `json:"pending" doc:"Tasks that are PENDING."`
	GPUs    float64 `json:"gpus" doc:"GPUs that the running tasks hold. Shares of a GPU count as such."`
}

// Waits says how long jobs wait. The wait of a job begins when nothing but a lack of free resources keeps it from being
// placed. It ends when the first of its tasks is sent to a node. The job also waits later, while none of its tasks is
// assigned.
type Waits struct {
	Started int64      `json:"started" doc:"Jobs that started for the first time within the last hour. A daemon counts from its start on."`
	P50     *float64   `json:"p50" doc:"Half of these jobs waited no longer, in seconds, at most a tenth too high; null: none started."`
	P95     *float64   `json:"p95" doc:"19 of 20 of these jobs waited no longer, as p50."`
	Longest *float64   `json:"longest" doc:"How long the one of these jobs waited that waited longest, in seconds; null: none started."`
	Since   *time.Time `json:"waiting_since" doc:"Since when the job waits that has now waited longest, by the clock of the daemon that was asked, as far as it knows whose clock is wrong; null: none waits."`
	Partial []string   `json:"partial" nullable:"false" doc:"Names of the nodes that answer, but do not tell this: their daemons are of an earlier version. Their jobs and users are not counted here."`
}

// valid reports whether another daemon's figures are possible.
func (q *QueueInfo) valid() bool {
	if len(q.Users) > maxLoads || q.More < 0 || q.More > maxLoad {
		return false
	}
	for _, u := range q.Users {
		if !validUser(u.User) || u.Running < 0 || u.Running > maxLoad || u.Pending < 0 || u.Pending > maxLoad || !(u.GPUs >= 0 && u.GPUs <= maxLoad) {
			return false
		}
	}
	return q.Waited.Valid()
}

// most compares two users, so that the user who holds most comes first.
func most(a, b UserLoad) int {
	return cmp.Or(cmp.Compare(b.GPUs, a.GPUs), cmp.Compare(b.Running, a.Running), cmp.Compare(b.Pending, a.Pending), cmp.Compare(a.User, b.User))
}

// forDaemons returns the part that other daemons get: at most maxLoads users.
func (q QueueInfo) forDaemons() QueueInfo {
	slices.SortFunc(q.Users, most)
	if n := len(q.Users); n > maxLoads {
		q.Users, q.More = q.Users[:maxLoads], q.More+n-maxLoads
	}
	return q
}

// seenBy returns a copy without the users whose jobs a requester may not see.
func (q QueueInfo) seenBy(may func(user string) bool) *QueueInfo {
	all := q.Users
	q.Users = nil
	for _, u := range all {
		if may(u.User) {
			q.Users = append(q.Users, u)
		}
	}
	if len(q.Users) < len(all) {
		q.More = 0 // the number of hidden users stays hidden, too
	}
	return &q
}

// queueSum adds up the QueueInfos of the members.
type queueSum struct {
	waited  waittime.Counts
	oldest  *time.Time
	users   map[string]UserLoad
	more    int
	told    bool // at least one member has sent one
	partial []string
}

// add adds the QueueInfo of a member whose clock is ahead by this number of seconds. It notes the member's name if q is nil.
func (s *queueSum) add(name string, q *QueueInfo, ahead float64) {
	if q == nil {
		s.partial = append(s.partial, name)
		return
	}
	s.told = true
	s.waited.Add(q.Waited)
	if q.Oldest == nil {
		// none of its jobs waits
	} else if at := q.Oldest.Add(-time.Duration(ahead * float64(time.Second))); s.oldest == nil || at.Before(*s.oldest) {
		s.oldest = &at
	}
	if s.users == nil {
		s.users = map[string]UserLoad{}
	}
	for _, u := range q.Users {
		x := s.users[u.User]
		s.users[u.User] = UserLoad{u.User, x.Running + u.Running, x.Pending + u.Pending, x.GPUs + u.GPUs}
	}
	s.more = max(s.more, q.More) // not the sum: the daemons may have left out the same users
}

// into puts the sum into the totals of the cluster.
func (s *queueSum) into(d *Stats) {
	d.Users = make([]UserLoad, 0, len(s.users))
	for _, u := range s.users {
		d.Users = append(d.Users, u)
	}
	slices.SortFunc(d.Users, most)
	d.MoreUsers = s.more + max(0, len(d.Users)-maxStatsUsers)
	d.Users = d.Users[:min(len(d.Users), maxStatsUsers)]
	if !s.told {
		return
	}
	slices.Sort(s.partial)
	w := &Waits{Started: s.waited.Total(), Partial: append([]string{}, s.partial...)}
	if s.oldest != nil {
		w.Since = at(*s.oldest)
	}
	if w.Started > 0 {
		longest := s.waited.Longest.Seconds()
		w.P50, w.P95, w.Longest = waitOf(s.waited, 0.5), waitOf(s.waited, 0.95), &longest
	}
	d.Waits = w
}

func waitOf(c waittime.Counts, part float64) *float64 {
	d, ok := c.Quantile(part)
	if !ok {
		return nil
	}
	seconds := d.Seconds()
	return &seconds
}
