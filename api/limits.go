package api

// Limits of users: what each may hold on a node, merged over all nodes that answer.

import (
	"cmp"
	"fmt"
	"slices"
)

// UserLimit bounds what a user may hold on one node at a time, or in the cluster. Nil: not bounded.
type UserLimit struct {
	Tasks  *int64 `json:"tasks,omitempty"`
	GPUs   *int64 `json:"gpus,omitempty"`
	CPUs   *int64 `json:"cpus,omitempty"`
	Memory *int64 `json:"memory,omitempty" doc:"Bytes."`
	// Priority and MaxTime bound the priority and the time limit of each of the user's tasks.
	Priority *int64 `json:"priority,omitempty" doc:"The highest priority of the user's tasks there, and of the jobs that the user submits there."`
	MaxTime  *int64 `json:"max_time,omitempty" doc:"The longest time limit of the user's tasks there, and of the jobs that the user submits there, in seconds."`

	ClusterTasks  *int64 `json:"cluster_tasks,omitempty" doc:"On all nodes together, of the jobs that the user submits there."`
	ClusterGPUs   *int64 `json:"cluster_gpus,omitempty" doc:"As cluster_tasks."`
	ClusterCPUs   *int64 `json:"cluster_cpus,omitempty" doc:"As cluster_tasks."`
	ClusterMemory *int64 `json:"cluster_memory,omitempty" doc:"Bytes. As cluster_tasks."`
}

// all returns the fields.
func (l *UserLimit) all() []**int64 {
	return []**int64{
		&l.Tasks, &l.GPUs, &l.CPUs, &l.Memory, &l.Priority, &l.MaxTime, &l.ClusterTasks, &l.ClusterGPUs, &l.ClusterCPUs, &l.ClusterMemory,
	}
}

// NodesLimit is a limit that several nodes have for a user.
type NodesLimit struct {
	UserLimit

	Nodes int `json:"nodes" doc:"The number of nodes that have this limit for the user."`
}

// LimitsInfo has the limits of a host: those of every user, and those of some users in particular.
type LimitsInfo struct {
	PerUser UserLimit            `json:"per_user"`
	Users   map[string]UserLimit `json:"users,omitempty"` // each quantity overrides that of PerUser
}

// of returns the limits of a user.
func (l LimitsInfo) of(user string) UserLimit {
	out, own := l.PerUser, l.Users[user]
	each := out.all()
	for i, q := range own.all() {
		*each[i] = cmp.Or(*q, *each[i])
	}
	return out
}

// limitKey is the same for equal limits.
type limitKey [20]int64

func (l UserLimit) key() (k limitKey) {
	for i, q := range l.all() {
		if *q != nil {
			k[2*i], k[2*i+1] = 1, **q
		}
	}
	return k
}

// hostLimits counts the hosts that have the same limits. Most clusters have one configuration. So the work for a user grows
// with the number of different configurations, not with the number of hosts.
type hostLimits map[string]*sameLimits

type sameLimits struct {
	limits LimitsInfo
	hosts  int
}

func limitsOf(first LimitsInfo) hostLimits {
	h := hostLimits{}
	h.add(first)
	return h
}

func (h hostLimits) add(l LimitsInfo) {
	users := make([]string, 0, len(l.Users))
	for name, own := range l.Users {
		users = append(users, fmt.Sprintf("%q%v", name, own.key()))
	}
	slices.Sort(users)
	key := fmt.Sprint(l.PerUser.key(), users)
	if h[key] == nil {
		h[key] = &sameLimits{limits: l}
	}
	h[key].hosts++
}

// fill sets the limits of the users. The limits that most nodes have come first.
func (h hostLimits) fill(users []User) {
	for i := range users {
		if users[i].User == "" {
			continue
		}
		by := map[limitKey]*NodesLimit{}
		for _, same := range h {
			own := same.limits.of(users[i].User)
			k := own.key()
			if k == (limitKey{}) {
				continue
			}
			if by[k] == nil {
				by[k] = &NodesLimit{UserLimit: own}
			}
			by[k].Nodes += same.hosts
		}
		for _, l := range by {
			users[i].Limits = append(users[i].Limits, *l)
		}
		slices.SortFunc(users[i].Limits, func(a, b NodesLimit) int {
			x, y := a.key(), b.key()
			return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), slices.Compare(x[:], y[:]))
		})
	}
}
