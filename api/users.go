package api

// The route of users and projects: what they have used, their shares, and what they have waiting. Any user may name any
// number of projects, so the lists of projects are bounded.

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/musterhq/muster/internal/fairshare"
)

// Users returns what users and projects use.
type Users interface {
	// Users returns what accounts have used of this host, and what the jobs that this daemon owns run and wait for.
	Users(ctx context.Context) (UsersInfo, error)

	Allotments
}

// UsersInfo is what one daemon knows of users and projects.
type UsersInfo struct {
	Weights  fairshare.Weights `json:"-"`
	Has      fairshare.Use     `json:"has"` // GPUs and CPUs of the host
	Accounts []AccountInfo     `json:"accounts"`
	Limits   LimitsInfo        `json:"limits"`
	// Sight says who besides a user may see what the user has used. The daemon that lists users obeys it, as for jobs.
	Sight feedHello `json:"sight,omitzero"`
}

// AccountInfo is what one daemon knows of a user in a project. Used is decayed, and covers only that daemon's host. Running
// and Waiting count tasks of the jobs that the daemon owns.
type AccountInfo struct {
	fairshare.Account
	Used    fairshare.Use `json:"used"`
	Running int           `json:"running"`
	Waiting int           `json:"waiting"`
}

// SchemaUser and SchemaUsers name the documents of users.
const (
	SchemaUser  = "muster.user/v1"
	SchemaUsers = "muster.users/v1"
)

// User is what a user, or a project as a whole, has used of the cluster, and its share.
type User struct {
	Schema  string `json:"schema"`
	User    string `json:"user" doc:"Empty: this is the project as a whole."`
	Project string `json:"project" doc:"Empty: jobs without a project. Such jobs and those of projects without a weight share as one project."`
	// Weight is the weight of the user, or of the project for a project as a whole.
	Weight     float64 `json:"weight"`
	Share      float64 `json:"share" doc:"The part of the cluster that it should have, among all that are listed."`
	Used       float64 `json:"used" doc:"The part of what all have used that it has used."`
	GPUSeconds float64 `json:"gpu_seconds" doc:"Decayed with the half-life."`
	CPUSeconds float64 `json:"cpu_seconds" doc:"Decayed with the half-life."`
	Running    int     `json:"running" doc:"Tasks that are assigned to a node."`
	Waiting    int     `json:"waiting" doc:"Tasks that are PENDING."`
	Idle       bool    `json:"idle,omitempty" doc:"The user has used nothing and has no jobs, and so counts for no share."`
	Others     int     `json:"others,omitempty" doc:"This many projects without a weight are not listed: the user has used less in them than in those that are, and this line counts them too."`
	// Limits are the limits of the user; they do not depend on the project.
	Limits []NodesLimit `json:"limits,omitempty" doc:"What the user may hold on one node at a time, and in the cluster, in all projects together. Nodes without a limit for the user are left out, and so is a project as a whole."`
}

type (
	usersOutput    struct{ Body Listing[User] }
	hostUsesOutput struct{ Body UsersInfo }
)

// userRoutes merges what all daemons know of users.
type userRoutes struct {
	*daemons

	users Users
	sight *feedHello
}

// here serves to another daemon what this daemon knows of users.
func (r *userRoutes) here(ctx context.Context, _ *struct{}) (*hostUsesOutput, error) {
	info, err := r.users.Users(ctx)
	if err != nil {
		return nil, err
	}
	info.Accounts, info.Sight = accountsForDaemons(&info.Weights, info.Accounts), *r.sight
	if a := requesterOf(ctx); r.sight.Own && !slices.Contains(a.roles, roleScheduler) { // that daemon has no users
		info.Accounts = []AccountInfo{}
		clear(info.Limits.Users)
	}
	return &hostUsesOutput{info}, nil
}

type usersInput struct {
	User []string `query:"user" maxItems:"1000" doc:"List these users only, also those who have used nothing. Otherwise those are listed who have used something or have jobs, who asks, and who is named in the limits of a node."`
}

func (r *userRoutes) list(ctx context.Context, in *usersInput) (*usersOutput, error) {
	all, err := r.users.Users(ctx)
	if err != nil {
		return nil, err
	}
	asks := requesterOf(ctx)
	sees := &usersSeen{}
	sees.add(&asks, &all, *r.sight)
	answers, err := fan[UsersInfo](ctx, r.daemons, "/peer/v1/users", nil)
	if err != nil {
		return nil, err
	}
	limits := limitsOf(all.Limits)
	for i := range answers {
		a := &answers[i]
		if a.err == nil && !a.value.plausible() {
			a.err = fmt.Errorf("%w: what it tells of users cannot be true", ErrUnavailable)
			r.metrics.dropped(1)
		}
		if a.err == nil {
			all.Has = all.Has.Plus(a.value.Has, 1)
			all.Accounts = append(all.Accounts, a.value.Accounts...)
			sees.add(&asks, &a.value, a.value.Sight)
			limits.add(a.value.Limits)
		}
	}
	items := r.withIdle(&asks, sees.of(userDocuments(all)), &all.Weights, slices.Sorted(maps.Keys(sees.named)), in.User)
	limits.fill(items)
	return &usersOutput{Listing[User]{Schema: SchemaUsers, Items: items, Partial: silent(r.daemons, answers)}}, nil
}

// maxIdle bounds the idle users who are listed only because a node has limits for them.
const maxIdle = 1000

// withIdle adds users who have used nothing and have no jobs. If the request names users (wanted), it adds these, and
// removes all users who are not wanted. Otherwise it adds the requester and the users for whom a node has limits (named).
func (r *userRoutes) withIdle(asks *requester, items []User, w *fairshare.Weights, named, wanted []string) []User {
	names := append([]string{asks.user}, named[:min(len(named), maxIdle)]...)
	if len(wanted) > 0 {
		names = wanted
		items = slices.DeleteFunc(items, func(u User) bool { return !slices.Contains(wanted, u.User) })
	}
	listed, sight := map[string]bool{"": true}, seen{own: r.sight.Own, operators: r.sight.Operators}
	for i := range items {
		listed[items[i].User] = true
	}
	for _, name := range names {
		if listed[name] || !validUser(name) || !sight.may(asks, name) {
			continue
		}
		listed[name] = true
		items = append(items, User{Schema: SchemaUser, User: name, Weight: w.User(name), Idle: true})
	}
	slices.SortStableFunc(items, func(a, b User) int { return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.User, b.User)) })
	return items
}

// usersSeen has the users that a requester may see. Hidden users still count for the shares.
type usersSeen struct {
	shown map[string]bool
	named map[string]bool // users that are not hidden and for whom a node has limits
	some  bool            // some users are hidden
}

// add adds the users that a daemon has reported. by says who may see them.
func (s *usersSeen) add(a *requester, told *UsersInfo, by feedHello) {
	if s.shown == nil {
		s.shown, s.named = map[string]bool{}, map[string]bool{}
	}
	sight := seen{own: by.Own, operators: by.Operators}
	for i := range told.Accounts {
		if user := told.Accounts[i].User; sight.may(a, user) {
			s.shown[user] = true
		} else {
			s.some = true
		}
	}
	for user := range told.Limits.Users {
		if sight.may(a, user) {
			s.named[user] = true
		}
	}
}

// of returns the rows of the users that are shown. If some are hidden, it leaves out projects as a whole, because these sums
// would reveal what hidden users have used.
func (s *usersSeen) of(all []User) []User {
	if !s.some {
		return all
	}
	return slices.DeleteFunc(all, func(u User) bool { return !s.shown[u.User] })
}

// userDocuments adds up the accounts, computes the shares of users and projects from the weights, and merges projects of
// users who have too many. The rows are sorted by project, with the project as a whole before its users. Without projects,
// there are only rows of users.
func userDocuments(all UsersInfo) []User {
	w := &all.Weights
	users := map[fairshare.Account]*User{}
	for _, a := range all.Accounts {
		u := users[a.Account]
		if u == nil {
			u = &User{Schema: SchemaUser, User: a.User, Project: a.Project, Weight: w.User(a.User)}
			users[a.Account] = u
		}
		u.add(&User{GPUSeconds: a.Used.GPU, CPUSeconds: a.Used.CPU, Running: a.Running, Waiting: a.Waiting})
	}
	setShares(w, all.Has, users)
	mergeProjects(w, users)
	projects := map[string]*User{}
	out := make([]User, 0, 2*len(users))
	for _, u := range users {
		out = append(out, *u)
		p := projects[u.Project]
		if p == nil {
			p = &User{Schema: SchemaUser, Project: u.Project, Weight: w.Project(u.Project)}
			projects[u.Project] = p
		}
		p.add(u)
	}
	if len(projects) > 1 || projects[""] == nil && len(projects) > 0 {
		for _, p := range projects {
			out = append(out, *p)
		}
	}
	slices.SortFunc(out, func(a, b User) int { return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.User, b.User)) })
	return out
}

// setShares computes the shares of the users. A user with several projects without a weight has one share for all of them,
// which is divided in proportion to what the user has used in each.
func setShares(w *fairshare.Weights, has fairshare.Use, users map[fairshare.Account]*User) {
	used := func(u *User) float64 { return fairshare.Use{GPU: u.GPUSeconds, CPU: u.CPUSeconds}.Of(has) }
	total, weights := 0.0, 0.0
	inProject, inAccount, count := map[string]float64{}, map[fairshare.Account]float64{}, map[fairshare.Account]int{}
	for a, u := range users {
		total += used(u)
		k := w.Account(a)
		if count[k]++; count[k] == 1 {
			if inProject[k.Project] == 0 {
				weights += w.Project(k.Project)
			}
			inProject[k.Project] += w.User(k.User)
		}
		inAccount[k] += used(u)
	}
	for a, u := range users {
		k := w.Account(a)
		u.Share = w.Project(k.Project) / weights * w.User(k.User) / inProject[k.Project]
		if inAccount[k] > 0 {
			u.Share *= used(u) / inAccount[k]
		} else {
			u.Share /= float64(count[k])
		}
		if total > 0 {
			u.Used = used(u) / total
		}
	}
}

// accountsForDaemons returns the accounts that a daemon sends to others. If there are more than maxAccounts, it merges projects
// without a weight into the accounts of their users without a project. So a user who names a new project with each job
// cannot make the answer larger than other daemons accept.
func accountsForDaemons(w *fairshare.Weights, all []AccountInfo) []AccountInfo {
	if len(all) <= maxAccounts {
		return append([]AccountInfo{}, all...)
	}
	at := map[fairshare.Account]int{}
	var out []AccountInfo
	for i := range all {
		a := &all[i]
		account := w.Account(a.Account)
		n, there := at[account]
		if !there {
			n = len(out)
			at[account], out = n, append(out, AccountInfo{Account: account})
		}
		sum := &out[n]
		sum.Used = sum.Used.Plus(a.Used, 1)
		sum.Running += a.Running
		sum.Waiting += a.Waiting
	}
	return out
}

// maxProjects bounds the projects without a weight that are listed because of one user.
const maxProjects = 10

// mergeProjects bounds the projects without a weight. Of each user it keeps the maxProjects projects in which the user has
// tasks or has used most. Other projects count with the user's jobs that have no project, as they do for the shares.
func mergeProjects(w *fairshare.Weights, users map[fairshare.Account]*User) {
	of := map[string][]*User{}
	for a, u := range users {
		if a.Project != "" && w.Account(a).Project == "" {
			of[a.User] = append(of[a.User], u)
		}
	}
	listed := map[string]bool{}
	for _, us := range of {
		slices.SortFunc(us, func(a, b *User) int {
			return cmp.Or(-cmp.Compare(min(a.Running+a.Waiting, 1), min(b.Running+b.Waiting, 1)), -cmp.Compare(a.Used, b.Used), cmp.Compare(a.Project, b.Project))
		})
		for _, u := range us[:min(len(us), maxProjects)] {
			listed[u.Project] = true
		}
	}
	for user, us := range of {
		for _, u := range us {
			if listed[u.Project] {
				continue
			}
			a := fairshare.Account{User: user}
			if users[a] == nil {
				users[a] = &User{Schema: SchemaUser, User: user, Weight: u.Weight}
			}
			users[a].add(u)
			users[a].Others++
			delete(users, fairshare.Account{User: user, Project: u.Project})
		}
	}
}

// add adds the share, the use and the tasks of another account.
func (u *User) add(v *User) {
	u.Share += v.Share
	u.Used += v.Used
	u.GPUSeconds += v.GPUSeconds
	u.CPUSeconds += v.CPUSeconds
	u.Running += v.Running
	u.Waiting += v.Waiting
}
