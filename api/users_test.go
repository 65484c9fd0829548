package api

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
)

func (*daemon) Allotments(context.Context, job.Peer, []contract.Allotment) ([]contract.Allotment, error) {
	return nil, nil
}

// Users makes each daemon report the same of its host: its users have used an hour of a GPU and wait.
func (d *daemon) Users(context.Context) (UsersInfo, error) {
	return UsersInfo{
		Weights: fairshare.Weights{HalfLife: time.Hour, Users: map[string]float64{"ada": 3}, Projects: map[string]float64{"vision": 2}},
		Has:     fairshare.Use{GPU: 2, CPU: 8},
		Limits: LimitsInfo{
			PerUser: UserLimit{Tasks: new(int64(9))},
			Users:   map[string]UserLimit{"ada": {GPUs: new(int64(4))}, d.name: {Tasks: new(int64(1))}},
		},
		Accounts: []AccountInfo{
			{Account: fairshare.Account{User: "ada"}, Used: fairshare.Use{GPU: 3600, CPU: 3600}, Running: 1},
			{Account: fairshare.Account{User: "bob", Project: "vision"}, Used: fairshare.Use{CPU: 2 * 3600}, Waiting: 2},
			{Account: fairshare.Account{User: d.name}, Waiting: 1},
		},
	}, nil
}

func TestUsersAddUpOverTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "n1", "n2", "n3")
		close(c.daemons[2].silent)
		l, err := c.daemons[0].client.Users(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(l.Partial) != 1 || l.Partial[0] != "n3" {
			t.Errorf("partial: got %v, want n3", l.Partial)
		}
		nine, four := new(int64(9)), new(int64(4))
		limits := map[string][]NodesLimit{
			"ada": {{UserLimit{Tasks: nine, GPUs: four}, 2}},
			"amy": {{UserLimit{Tasks: nine}, 2}},
			"bob": {{UserLimit{Tasks: nine}, 2}},
			"n1":  {{UserLimit{Tasks: new(int64(1))}, 1}, {UserLimit{Tasks: nine}, 1}}, // n1 itself has another limit for this user
			"n2":  {{UserLimit{Tasks: new(int64(1))}, 1}, {UserLimit{Tasks: nine}, 1}},
		}
		want := []User{ // jobs without a project share a third of all, ada three fifths of that
			{Project: "", User: "", Weight: 1, Share: 1. / 3, Used: 2. / 3, GPUSeconds: 7200, CPUSeconds: 7200, Running: 2, Waiting: 2},
			{Project: "", User: "ada", Weight: 3, Share: 3. / 5 / 3, Used: 2. / 3, GPUSeconds: 7200, CPUSeconds: 7200, Running: 2},
			{Project: "", User: "amy", Weight: 1, Idle: true}, // the user who asks
			{Project: "", User: "n1", Weight: 1, Share: 1. / 5 / 3, Waiting: 1},
			{Project: "", User: "n2", Weight: 1, Share: 1. / 5 / 3, Waiting: 1},
			{Project: "vision", User: "", Weight: 2, Share: 2. / 3, Used: 1. / 3, CPUSeconds: 4 * 3600, Waiting: 4},
			{Project: "vision", User: "bob", Weight: 1, Share: 2. / 3, Used: 1. / 3, CPUSeconds: 4 * 3600, Waiting: 4},
		}
		if len(l.Items) != len(want) {
			t.Fatalf("got %d rows, want %d: %+v", len(l.Items), len(want), l.Items)
		}
		for i, x := range l.Items {
			w := want[i]
			w.Schema, w.Limits = SchemaUser, limits[w.User]
			near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
			if !near(x.Share, w.Share) || !near(x.Used, w.Used) {
				t.Errorf("row %d: got share %v and use %v, want %v and %v", i, x.Share, x.Used, w.Share, w.Used)
			}
			x.Share, x.Used, w.Share, w.Used = 0, 0, 0, 0
			if !reflect.DeepEqual(x, w) {
				t.Errorf("row %d: got %+v, want %+v", i, x, w)
			}
		}
	})
}

// A list also shows the limits of users who have run nothing yet: of the one who asks and of those that a node names,
// or of those that are asked for.
func TestUsersWhoHaveRunNothingHaveLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "n1", "n2")
		nothing := UsersInfo{Limits: LimitsInfo{
			PerUser: UserLimit{ClusterGPUs: new(int64(4)), MaxTime: new(int64(3600))},
			Users:   map[string]UserLimit{"eve": {Priority: new(int64(10))}},
		}}
		for _, d := range c.daemons[1:] {
			d.mu.Lock()
			d.lies = map[string]any{"/peer/v1/users": nothing}
			d.mu.Unlock()
		}
		client := c.daemons[0].client
		list := func(users ...string) (rows []string, all map[string][]NodesLimit) {
			t.Helper()
			l, err := client.Users(t.Context(), users...)
			if err != nil {
				t.Fatal(err)
			}
			all = map[string][]NodesLimit{}
			for _, u := range l.Items {
				row := u.Project + "/" + u.User
				if u.Idle {
					row += " idle"
				}
				rows, all[u.User] = append(rows, row), u.Limits
			}
			return rows, all
		}
		all, _ := list()
		if want := []string{"/", "/ada", "/amy idle", "/eve idle", "/n1", "vision/", "vision/bob"}; !slices.Equal(all, want) {
			t.Errorf("all: got %q, want %q", all, want)
		}
		some, limits := list("zoe", "eve", "bob", "zoe")
		if want := []string{"/eve idle", "/zoe idle", "vision/bob"}; !slices.Equal(some, want) {
			t.Errorf("some: got %q, want %q", some, want)
		}
		hour, four, nine := new(int64(3600)), new(int64(4)), new(int64(9))
		if got, want := limits["zoe"], []NodesLimit{{UserLimit{Tasks: nine}, 1}, {UserLimit{ClusterGPUs: four, MaxTime: hour}, 1}}; !sameLimitsOf(got, want) {
			t.Errorf("zoe: got %+v, want %+v", got, want)
		}
		if got, want := limits["eve"], []NodesLimit{{UserLimit{Tasks: nine}, 1}, {UserLimit{ClusterGPUs: four, MaxTime: hour, Priority: new(int64(10))}, 1}}; !sameLimitsOf(got, want) {
			t.Errorf("eve: got %+v, want %+v", got, want)
		}
		if bad, _ := list("a b"); len(bad) != 0 {
			t.Errorf("an invalid name of a user is listed: got %q, want 0", bad)
		}
	})
}

// sameLimitsOf reports whether both have the same limits, in any order.
func sameLimitsOf(a, b []NodesLimit) bool {
	byKey := func(x, y NodesLimit) int {
		kx, ky := x.key(), y.key()
		return slices.Compare(kx[:], ky[:])
	}
	slices.SortFunc(a, byKey)
	slices.SortFunc(b, byKey)
	return reflect.DeepEqual(a, b)
}

// Impossible figures of a member about users are ignored, and the member is named. The rest is still listed.
func TestImpossibleFiguresOfUsersAreIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "n1", "mal")
		n1, mal := c.daemons[0], c.daemons[1]
		ada := fairshare.Account{User: "ada"}
		for name, change := range map[string]func(u *UsersInfo){
			"no lie": func(*UsersInfo) {},
			"endless use": func(u *UsersInfo) {
				u.Accounts[0].Used.GPU = math.MaxFloat64
				u.Accounts = append(u.Accounts, u.Accounts[0])
			},
			"use below 0":    func(u *UsersInfo) { u.Accounts[0].Used.CPU = -1e9 },
			"GPUs below 0":   func(u *UsersInfo) { u.Has.GPU = -2 },
			"tasks below 0":  func(u *UsersInfo) { u.Accounts[0].Waiting = -1 },
			"no name":        func(u *UsersInfo) { u.Accounts[0].User = "" },
			"no user's name": func(u *UsersInfo) { u.Accounts[0].User = "a\x1b[2J" },
			"wrong project":  func(u *UsersInfo) { u.Accounts[0].Project = "=1+1" },
			"limit below 0":  func(u *UsersInfo) { u.Limits.PerUser.Tasks = new(int64(-1)) },
			"many accounts":  func(u *UsersInfo) { u.Accounts = slices.Repeat(u.Accounts, maxAccounts+1) },
		} {
			lie := UsersInfo{Has: fairshare.Use{GPU: 2, CPU: 8}, Accounts: []AccountInfo{{Account: ada, Used: fairshare.Use{GPU: 3600}, Running: 1}}}
			change(&lie)
			mal.mu.Lock()
			mal.lies = map[string]any{"/peer/v1/users": lie}
			mal.mu.Unlock()
			l, err := n1.client.Users(t.Context())
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			believed := name == "no lie"
			at := slices.IndexFunc(l.Items, func(u User) bool { return u.User == "ada" })
			if at < 0 || (l.Items[at].GPUSeconds == 7200) != believed || (len(l.Partial) == 0) != believed {
				t.Errorf("%s: got partial %v, %+v, want figures only if they are possible", name, l.Partial, l.Items)
			}
		}
	})
}

// A user of several projects without a weight has one share in all of them, so that naming projects has no effect.
func TestInventedProjectsGainNoShare(t *testing.T) {
	info := UsersInfo{Has: fairshare.Use{GPU: 1}, Accounts: []AccountInfo{
		{Account: fairshare.Account{User: "ada"}, Used: fairshare.Use{GPU: 100}},
		{Account: fairshare.Account{User: "bob", Project: "x"}, Used: fairshare.Use{GPU: 60}},
		{Account: fairshare.Account{User: "bob", Project: "y"}, Used: fairshare.Use{GPU: 40}},
		{Account: fairshare.Account{User: "bob", Project: "z"}},
	}}
	bob := 0.0
	for _, u := range userDocuments(info) {
		if u.User == "bob" {
			bob += u.Share
		}
	}
	if math.Abs(bob-0.5) > 1e-9 {
		t.Errorf("share of bob: got %v, want a half", bob)
	}
}

// Of the projects that a user invents, those with tasks and those with the most use are listed. The others are counted
// together, and a project with a weight, or one that is in another user's list, stays.
func TestListOfInventedProjectsIsBounded(t *testing.T) {
	info := UsersInfo{Has: fairshare.Use{GPU: 1}, Weights: fairshare.Weights{Projects: map[string]float64{"vision": 1}}}
	account := func(user, project string, used float64, running int) {
		info.Accounts = append(info.Accounts, AccountInfo{Account: fairshare.Account{User: user, Project: project}, Used: fairshare.Use{GPU: used}, Running: running})
	}
	for i := range 280 {
		account("eve", fmt.Sprintf("p%03d", i), float64(i), 0)
	}
	account("eve", "runs", 0, 1)
	account("eve", "vision", 0, 0)
	account("eve", "lab", 0, 0)
	account("bob", "lab", 5, 0)
	used, shares := 0.0, 0.0
	var projects []string
	for _, u := range userDocuments(info) {
		if u.User == "" {
			continue
		}
		if u.Project == "" && (u.User != "eve" || u.Others != 271) {
			t.Errorf("got %+v, want 271 others of eve", u)
		}
		if u.User == "eve" {
			projects = append(projects, u.Project)
		}
		used, shares = used+u.GPUSeconds, shares+u.Share
	}
	if want := []string{"", "lab", "p271", "p272", "p273", "p274", "p275", "p276", "p277", "p278", "p279", "runs", "vision"}; !slices.Equal(projects, want) {
		t.Errorf("projects of eve: got %v, want %v", projects, want)
	}
	if used != 279*280/2+5 || math.Abs(shares-1) > 1e-9 {
		t.Errorf("got use %v and shares %v in all, want the sum and 1", used, shares)
	}
}

// usersFunc is what a daemon knows about users.
type usersFunc func() UsersInfo

func (usersFunc) Allotments(context.Context, job.Peer, []contract.Allotment) ([]contract.Allotment, error) {
	return nil, nil
}

func (f usersFunc) Users(context.Context) (UsersInfo, error) { return f(), nil }

// A user who names another project with each of many jobs does not make other daemons reject the report of the own
// daemon. Nothing is lost by that, and projects with a weight stay.
func TestManyProjectsAreBelieved(t *testing.T) {
	info := UsersInfo{Has: fairshare.Use{GPU: 1}, Weights: fairshare.Weights{Projects: map[string]float64{"vision": 1}}}
	info.Accounts = append(info.Accounts, AccountInfo{Account: fairshare.Account{User: "ada", Project: "vision"}, Used: fairshare.Use{GPU: 7}, Running: 2})
	for i := range 2 * maxAccounts {
		info.Accounts = append(info.Accounts, AccountInfo{Account: fairshare.Account{User: "bob", Project: fmt.Sprint("p", i)}, Used: fairshare.Use{CPU: 1}, Waiting: 3})
	}
	r := userRoutes{users: usersFunc(func() UsersInfo { return info }), sight: &feedHello{}}
	out, err := r.here(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []AccountInfo{info.Accounts[0], {Account: fairshare.Account{User: "bob"}, Used: fairshare.Use{CPU: 2 * maxAccounts}, Waiting: 6 * maxAccounts}}
	if !out.Body.plausible() || !reflect.DeepEqual(out.Body.Accounts, want) {
		t.Errorf("plausible %v, got %d accounts, first %+v, want one that is plausible", out.Body.plausible(), len(out.Body.Accounts), out.Body.Accounts[:min(3, len(out.Body.Accounts))])
	}
}

// With visibility own a user sees only the own row, also from a daemon that reports others. The shares are those among
// all users. A member that has no users sees none.
func TestUsersShowOwnOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		rows := func(d *daemon) (names []string, share float64) {
			t.Helper()
			l, err := d.client.Users(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range l.Items {
				names = append(names, u.Project+"/"+u.User)
				if u.User == "amy" {
					share = u.Share
				}
			}
			return names, share
		}
		all, share := rows(amy)
		if len(all) != 6 {
			t.Fatalf("with visibility all: got %v, want 6 rows", all)
		}
		own := func(d *daemon, operators ...string) {
			d.server.feeds.hello = helloOf(Config{OwnOnly: true, Operators: operators})
		}
		own(ben)
		if got, _ := rows(amy); slices.Contains(got, "/ben") || !slices.Contains(got, "/ada") {
			t.Errorf("ben hides its users: amy lists %v, want ada and not ben", got)
		}
		own(amy)
		got, same := rows(amy)
		if !slices.Equal(got, []string{"/amy"}) || same != share {
			t.Errorf("both hide their users: amy sees %v with the share %v, want its row with %v", got, same, share)
		}
		own(amy, "amy")
		own(ben, "amy")
		if got, _ := rows(amy); len(got) != len(all) {
			t.Errorf("an operator sees %v, want all", got)
		}
		routes := userRoutes{users: ben, sight: &ben.server.feeds.hello}
		ctx := context.WithValue(t.Context(), requesterKey{}, requester{from: fromPeer, roles: []string{roleWorker}})
		out, err := routes.here(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if told := out.Body; len(told.Accounts) != 0 || len(told.Limits.Users) != 0 {
			t.Errorf("a guest gets %+v, want nothing", told)
		}
	})
}
