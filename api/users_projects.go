package api

// Which projects are told and listed of each user: any user may name any project, and as many as he likes.

import (
	"cmp"
	"slices"

	"github.com/musterhq/muster/internal/fairshare"
)

// accountsTold returns what a daemon tells another one of its accounts: at most maxAccounts, or else without the projects that
// have no weight, which then count with the jobs of their users that have no project. So no user can have it tell more than
// others believe by naming another project with each job.
func accountsTold(w *fairshare.Weights, all []AccountInfo) []AccountInfo {
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

// mergeProjects keeps those projects without a weight in which one of the users has tasks or has used most. Others count
// with the jobs of their users that have no project, as they do for the shares.
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

// add adds what another account has used, should use and waits for.
func (u *User) add(v *User) {
	u.Share += v.Share
	u.Used += v.Used
	u.GPUSeconds += v.GPUSeconds
	u.CPUSeconds += v.CPUSeconds
	u.Running += v.Running
	u.Waiting += v.Waiting
}
