package contract

import (
	"fmt"
	"strings"
	"testing"

	"github.com/musterhq/muster/job"
)

func TestNeverNamesTheLimit(t *testing.T) {
	l := &UserLimits{
		PerUser: Limit{LimitGPUs: 4, LimitCPUs: 8, LimitMemory: 8 << 30, LimitPriority: 50},
		Users:   map[string]Limit{"ada": {LimitGPUs: 6}, "bob": {LimitTasks: 0}, "root": {LimitPriority: 100}},
	}
	for name, c := range map[string]struct {
		user string
		need job.Resources
		want string
	}{
		"all that is allowed":  {"eve", job.Resources{CPUs: 8, GPUs: 4, Memory: 8 << 30}, ""},
		"gpus":                 {"eve", job.Resources{GPUs: 5}, "user eve may hold at most 4 gpus there (limits.per_user.gpus), 5 wanted"},
		"more for this user":   {"ada", job.Resources{GPUs: 6}, ""},
		"more than this":       {"ada", job.Resources{GPUs: 7}, "user ada may hold at most 6 gpus there (limits.users.ada.gpus), 7 wanted"},
		"others hold for her":  {"ada", job.Resources{CPUs: 9}, "user ada may hold at most 8 cpus there (limits.per_user.cpus), 9 wanted"},
		"no tasks":             {"bob", job.Resources{}, "user bob may hold at most 0 tasks there (limits.users.bob.tasks), 1 wanted"},
		"a share":              {"eve", job.Resources{GPUShare: 0.5}, ""},
		"memory":               {"eve", job.Resources{Memory: 9 << 30}, "user eve may hold at most 8GiB memory there (limits.per_user.memory), 9GiB wanted"},
		"a whole host":         {"eve", Whole(job.Resources{CPUs: 1, Exclusive: true}, 4, 8), "user eve may hold at most 4 gpus there (limits.per_user.gpus), 8 wanted"},
		"a host without GPUs":  {"eve", Whole(job.Resources{CPUs: 1, Exclusive: true}, 4, 0), ""},
		"of a name with a dot": {"a.b", job.Resources{GPUs: 5}, "user a.b may hold at most 4 gpus there (limits.per_user.gpus), 5 wanted"},
	} {
		if got := l.Never(c.user, c.need); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if why := l.NeverOf("eve", 51); why != "priority 51 of user eve is above 50, the highest here (limits.per_user.priority)" || l.NeverOf("root", 100) != "" || l.NeverOf("eve", 50) != "" {
		t.Errorf("priorities: %q, want the limit named for eve above 50 only", why)
	}
	if why := l.ToMember(40).NeverOf("eve", 41); !strings.Contains(why, "above 40") || l.ToMember(40).NeverOf("eve", 40) != "" || l.ToMember(100) != l {
		t.Errorf("what a member may offer: %q, want at most 40", why)
	}
	var none *UserLimits
	if none.Never("eve", job.Resources{GPUs: 99}) != "" || none.NeverOf("eve", 100) != "" || none.ToMember(1) != nil {
		t.Error("a host without reported limits has some")
	}
}

// A host with very many users reports the limits of some of them. Those of the others are unknown.
func TestReportedLimitsAreBounded(t *testing.T) {
	l := &UserLimits{PerUser: Limit{LimitGPUs: 4}, Users: map[string]Limit{}}
	for i := range 200 {
		l.Users[fmt.Sprintf("u%04d", i)] = Limit{LimitGPUs: int64(i)}
	}
	if b := l.Bounded(); b != l {
		t.Fatalf("%d users are too many", len(l.Users))
	}
	for i := range 2000 {
		l.Users[fmt.Sprintf("u%04d", i)] = Limit{LimitGPUs: int64(i), LimitCPUs: 1, LimitTasks: 2}
	}
	b := l.Bounded()
	if len(b.Users) > MaxLimitedUsers || b.Size() > MaxLimits || !b.More || len(b.Users) < 100 {
		t.Fatalf("%d users in %d bytes, more: %t, want as many as fit", len(b.Users), b.Size(), b.More)
	}
	if why := b.Never("u0007", job.Resources{GPUs: 8}); why == "" {
		t.Error("the limit of a reported user does not count")
	}
	if why := b.Never("u1999", job.Resources{GPUs: 5}) + b.Never("eve", job.Resources{GPUs: 5}); why != "" {
		t.Errorf("of a user that is not told: %s, want none", why)
	}
}
