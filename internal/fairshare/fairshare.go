// Package fairshare says which of several users and projects goes first, by what they have used.
//
// Usage is counted in GPU-seconds and CPU-seconds, and decays: what was used one half-life ago counts half. Each user
// and each project has a weight. A user with weight 3 may use three times as much as one with weight 1 before the two
// are even.
//
// Projects with a weight share the cluster among themselves and with all jobs of no such project, which count as one
// more project. The users of one project share its part. So a job of a project goes before a job of another one that
// has used more of its share; of two jobs of the same project, the one goes first whose user has used less of his.
//
// See docs/adr, ADR 90.
package fairshare

import (
	"cmp"
	"math"
	"time"
)

// Account is whose usage it is. The project is empty if the job names none.
type Account struct {
	User    string `json:"user"`
	Project string `json:"project,omitempty"`
}

// Compare orders accounts by name.
func (a Account) Compare(b Account) int {
	return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Project, b.Project))
}

// String names the account for people.
func (a Account) String() string {
	if a.Project == "" {
		return a.User
	}
	return a.User + " in " + a.Project
}

// Use is an amount of use in GPU-seconds and CPU-seconds, or what is held, in GPUs and CPUs.
type Use struct {
	GPU float64 `json:"gpu"`
	CPU float64 `json:"cpu"`
}

// Entry is what an account has used.
type Entry struct {
	Account
	Used Use `json:"used"`
}

// Plus returns u plus v, k times.
func (u Use) Plus(v Use, k float64) Use { return Use{u.GPU + k*v.GPU, u.CPU + k*v.CPU} }

// Times returns u, k times.
func (u Use) Times(k float64) Use { return Use{k * u.GPU, k * u.CPU} }

// Capped returns u, scaled down so that it is not above most in any part. Parts below 0 become 0.
func (u Use) Capped(most Use) Use {
	return Use{min(max(u.GPU, 0), most.GPU), min(max(u.CPU, 0), most.CPU)}
}

// Of returns which part of has u is: the larger of the parts of its GPUs and of its CPUs. What has does not have does
// not count.
func (u Use) Of(has Use) float64 {
	part := 0.0
	if has.GPU > 0 {
		part = u.GPU / has.GPU
	}
	if has.CPU > 0 {
		part = max(part, u.CPU/has.CPU)
	}
	return part
}

// Decay returns which part of an amount still counts after d. It is at most 1: no clock makes usage grow.
func Decay(d, halfLife time.Duration) float64 {
	if d <= 0 || halfLife <= 0 {
		return 1
	}
	return math.Exp2(-d.Seconds() / halfLife.Seconds())
}

// Held returns what holding one unit for d has added to the decayed usage at the end of d, in seconds.
func Held(d, halfLife time.Duration) float64 {
	if d <= 0 || halfLife <= 0 {
		return 0
	}
	return Forever(halfLife) * -math.Expm1(-math.Ln2*d.Seconds()/halfLife.Seconds())
}

// Forever returns the decayed usage of one unit that was always held, in seconds. No usage of one unit is more.
func Forever(halfLife time.Duration) float64 { return halfLife.Seconds() / math.Ln2 }

// Standing is what an account has used of its share: first that of its project, then that of its user in the project.
// The account with the lower standing goes first. Standings are comparable only if they are of the same Table, or of
// tables over the same hosts.
type Standing struct{ Project, User float32 }

// Compare returns a number below 0 if s goes before t.
func (s Standing) Compare(t Standing) int {
	if s == t {
		return 0
	}
	return cmp.Or(cmp.Compare(s.Project, t.Project), cmp.Compare(s.User, t.User))
}

// Table holds what accounts have used at one moment.
type Table struct {
	weights  *Weights
	has      Use            // all that there is, in GPUs and CPUs
	projects map[string]Use // those with a weight; all others under the empty name
	users    map[Account]Use
}

// NewTable returns a table without usage. Has is all that there is, in GPUs and CPUs.
func NewTable(w *Weights, has Use) *Table {
	return &Table{weights: w, has: has, projects: map[string]Use{}, users: map[Account]Use{}}
}

// grain is what usage is rounded to in a table, in seconds. So sums do not depend on the order of what is added.
const grain = 1.0 / 16

// Add adds usage.
func (t *Table) Add(a Account, u Use) {
	a = t.weights.Account(a)
	u = Use{math.Round(max(u.GPU, 0)/grain) * grain, math.Round(max(u.CPU, 0)/grain) * grain}
	t.users[a] = t.users[a].Plus(u, 1)
	if len(t.weights.Projects) > 0 {
		t.projects[a.Project] = t.projects[a.Project].Plus(u, 1)
	}
}

// Of returns the standing of an account. A nil table has the same standing for all.
func (t *Table) Of(a Account) Standing {
	if t == nil {
		return Standing{}
	}
	a = t.weights.Account(a)
	return Standing{
		Project: float32(t.projects[a.Project].Of(t.has) / t.weights.Project(a.Project)),
		User:    float32(t.users[a].Of(t.has) / t.weights.User(a.User)),
	}
}
