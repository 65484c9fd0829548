package fairshare

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b)) }

// Time may be charged in any parts: the sum is the same.
func TestChargesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		halfLife := time.Duration(rapid.Int64Range(int64(MinHalfLife), int64(MaxHalfLife)).Draw(t, "half-life"))
		a := time.Duration(rapid.Int64Range(0, int64(240*time.Hour)).Draw(t, "a"))
		b := time.Duration(rapid.Int64Range(0, int64(240*time.Hour)).Draw(t, "b"))
		before := rapid.Float64Range(0, 1e9).Draw(t, "before")
		at := before*Decay(a, halfLife) + Held(a, halfLife)
		parts := at*Decay(b, halfLife) + Held(b, halfLife)
		whole := before*Decay(a+b, halfLife) + Held(a+b, halfLife)
		if !near(parts, whole) {
			t.Fatalf("got %v in two parts, want %v", parts, whole)
		}
		if h := Held(a, halfLife); h > a.Seconds()*(1+1e-9) || h > Forever(halfLife) {
			t.Fatalf("%s counts %v s, want at most its length and the limit", a, h)
		}
	})
}

func TestUseDecaysByItsHalfLife(t *testing.T) {
	day := 24 * time.Hour
	for d, want := range map[time.Duration]float64{-time.Hour: 1, 0: 1, day: 0.5, 2 * day: 0.25, 1000 * day: 0} {
		if got := Decay(d, day); math.Abs(got-want) > 1e-12 {
			t.Errorf("after %s: got %v, want %v", d, got, want)
		}
	}
	if Held(-time.Hour, day) != 0 || !near(Held(time.Second, day)/1, 1-math.Ln2/2/86400) && math.Abs(Held(time.Second, day)-1) > 1e-5 {
		t.Errorf("a second counts %v, want nearly 1, and negative time 0", Held(time.Second, day))
	}
}

func TestStandingsFollowWeightedUse(t *testing.T) {
	w, err := Parse(map[string]string{"users.ada": "3", "projects.vision": "2", "half_life": "1d"})
	if err != nil {
		t.Fatal(err)
	}
	table := NewTable(&w, Use{GPU: 10, CPU: 100})
	table.Add(Account{"ada", ""}, Use{GPU: 3000})
	table.Add(Account{"bob", ""}, Use{GPU: 500, CPU: 9000}) // his use of CPUs is the larger part
	table.Add(Account{"bob", "invented"}, Use{CPU: 500})    // a project without a share of its own
	table.Add(Account{"eve", ""}, Use{GPU: 600})
	table.Add(Account{"cyd", "vision"}, Use{GPU: 7000})
	var none *Table
	for _, c := range []struct {
		name   string
		before bool
		a, b   Account
	}{
		{"a third of the weighted use", true, Account{"dan", ""}, Account{"ada", ""}},
		{"CPUs count", true, Account{"eve", ""}, Account{"bob", ""}},
		{"an invented project is the user's own use", false, Account{"bob", "other"}, Account{"dan", ""}},
		{"projects first", true, Account{"dan", "vision"}, Account{"dan", ""}},
		{"then users", true, Account{"dan", "vision"}, Account{"cyd", "vision"}},
	} {
		x, y := table.Of(c.a), table.Of(c.b)
		if c.before && x.Compare(y) >= 0 || !c.before && x.Compare(y) <= 0 {
			t.Errorf("%s: got %s with %v, %s with %v, want that the first goes first: %v", c.name, c.a, x, c.b, y, c.before)
		}
	}
	if none.Of(Account{"ada", ""}) != (Standing{}) {
		t.Error("without a table an account has a standing")
	}
}

// Charges in another order give the same standings, to the last bit.
func TestStandingsDoNotDependOnTheOrderOfCharges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		uses := rapid.SliceOfN(rapid.Float64Range(0, 1e10), 1, 40).Draw(t, "uses")
		w := Weights{HalfLife: time.Hour}
		a, b := NewTable(&w, Use{GPU: 7}), NewTable(&w, Use{GPU: 7})
		for i, u := range uses {
			a.Add(Account{User: "ada"}, Use{GPU: u})
			b.Add(Account{User: "ada"}, Use{GPU: uses[len(uses)-1-i]})
		}
		if a.Of(Account{User: "ada"}) != b.Of(Account{User: "ada"}) {
			t.Fatal("standings depend on the order of charges")
		}
	})
}

func TestSettingsAreParsedAndBounded(t *testing.T) {
	for name, text := range map[string]string{
		"users.":         "1",
		"projects.":      "1",
		"projects.a b":   "1",
		"users.ada":      "0",
		"users.bob":      "NaN",
		"users.cyd":      "-1",
		"projects.x":     "1e300",
		"half_life":      "1s",
		"halflife":       "1d",
		"others":         "much",
		"users.eve.gpus": "one",
	} {
		if err := Check(name, text); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s=%s: got %v, want one line", name, text, err)
		}
	}
	w, err := Parse(map[string]string{"half_life": "0s"})
	if err != nil || w.On() {
		t.Errorf("half_life=0s: got on %v, %v, want false", w.On(), err)
	}
	if w, err := Parse(nil); err != nil || w.HalfLife != DefaultHalfLife || w.Period() != 10*time.Second || w.User("x") != 1 || w.Project("x") != 1 {
		t.Errorf("defaults: got %+v, %v, want the default half-life and weights of 1", w, err)
	}
	if w, err := Parse(map[string]string{"users.a.b": "2", "others": "4", "half_life": "10s"}); err != nil || w.User("a.b") != 2 || w.Project("") != 4 || w.Period() != time.Second {
		t.Errorf("got %+v, %v, want the settings", w, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("users.ada", "3")
	f.Add("half_life", "1d")
	f.Fuzz(func(t *testing.T, name, text string) {
		w, err := Parse(map[string]string{name: text})
		if err != nil {
			return
		}
		for _, x := range []float64{w.User("ada"), w.Project("vision"), w.Project("")} {
			if !(x >= minWeight && x <= maxWeight) {
				t.Fatalf("%q=%q: got weight %v, want one in bounds", name, text, x)
			}
		}
		if w.On() && w.Period() < time.Second {
			t.Fatalf("%q=%q: every %s, want at least 1s", name, text, w.Period())
		}
	})
}
