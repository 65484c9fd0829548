package daemon

// The usage of users and projects: on disk, so that a restarted daemon knows it, and for the API.

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/internal/store"
	schedulerloop "github.com/musterhq/muster/scheduler/loop"
	"github.com/musterhq/muster/worker/loop"
	"github.com/musterhq/muster/worker/resources"
)

// usageKey is the key of the usage in the store.
const usageKey = "worker/usage"

// loadUsage reads the usage that the previous daemon saved.
func loadUsage(disk *store.Store) (was resources.Usage, err error) {
	text, err := disk.Get(usageKey)
	if err != nil || text == nil {
		return resources.Usage{}, err
	}
	if err := json.Unmarshal(text, &was); err != nil {
		return resources.Usage{}, fmt.Errorf("node: read the usage of this host: %w", err)
	}
	return was, nil
}

func saveUsage(disk *store.Store, now resources.Usage) error {
	text, err := json.Marshal(now)
	if err != nil {
		return fmt.Errorf("node: save the usage of this host: %w", err)
	}
	return disk.Put(usageKey, text)
}

// usersBackend gives the API access to what users and projects use.
type usersBackend struct {
	work *loop.Loop
	allotments
}

var _ api.Users = usersBackend{}

// Users returns what accounts have used on this host, and which tasks of this daemon's jobs run and wait.
func (b usersBackend) Users(ctx context.Context) (api.UsersInfo, error) {
	v, err := b.work.Usage(ctx)
	if err != nil {
		return api.UsersInfo{}, apiErrorOf(err)
	}
	info := api.UsersInfo{Weights: v.Weights, Has: v.Has, Limits: limitsInfo(v.Limits, v.Priorities)}
	at := map[fairshare.Account]int{}
	of := func(a fairshare.Account) *api.AccountInfo {
		i, there := at[a]
		if !there {
			i = len(info.Accounts)
			at[a] = i
			info.Accounts = append(info.Accounts, api.AccountInfo{Account: a})
		}
		return &info.Accounts[i]
	}
	for _, e := range v.Entries {
		of(e.Account).Used = e.Used
	}
	for _, o := range b.by {
		q, err := schedulerloop.QueueOf(ctx, o.Loop)
		if err != nil {
			return api.UsersInfo{}, apiErrorOf(err)
		}
		for _, d := range q.Demands {
			a := of(d.Account)
			a.Running, a.Waiting = a.Running+d.Running, a.Waiting+d.Waiting
		}
	}
	slices.SortFunc(info.Accounts, func(a, b api.AccountInfo) int { return a.Compare(b.Account) })
	return info, nil
}

// limitsInfo returns the limits of users on this host in the form of the API.
func limitsInfo(l resources.Limits, p *contract.Priorities) api.LimitsInfo {
	of := func(l contract.Limit) api.UserLimit {
		at := func(q contract.Quantity) *int64 {
			if most, bounded := l[q]; bounded {
				return &most
			}
			return nil
		}
		return api.UserLimit{
			Tasks: at(contract.LimitTasks), GPUs: at(contract.LimitGPUs), CPUs: at(contract.LimitCPUs), Memory: at(contract.LimitMemory), MaxTime: at(contract.LimitTime),
			ClusterTasks: at(contract.LimitClusterTasks), ClusterGPUs: at(contract.LimitClusterGPUs), ClusterCPUs: at(contract.LimitClusterCPUs),
			ClusterMemory: at(contract.LimitClusterMemory),
		}
	}
	info := api.LimitsInfo{PerUser: of(l.PerUser), Users: map[string]api.UserLimit{}}
	for name, own := range l.Users {
		info.Users[name] = of(own)
	}
	if p == nil {
		return info
	}
	info.PerUser.Priority = new(int64(p.PerUser))
	for _, name := range append(slices.Sorted(maps.Keys(p.Users)), p.Operators...) {
		own := info.Users[name]
		most, _ := p.Highest(name)
		own.Priority = new(int64(most))
		info.Users[name] = own
	}
	return info
}
