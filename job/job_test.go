package job

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestIDCarriesItsGroup(t *testing.T) {
	for _, g := range []Group{0, 1, 1 << 63, 0xfedcba9876543210} {
		id := NewID(g, 0x3ffffffffffff)
		got, err := ParseID(string(id))
		if err != nil || got != id || id.Group() != g {
			t.Errorf("NewID(%d) = %q: parsed %q, group %d, %v, want the same", g, id, got, id.Group(), err)
		}
	}
	for _, bad := range []string{"", "abc", "k3v9x0q2mz-", "k3v9x0q2mz-0a1b2c3d4e5fl", "K3v9x0q2mz-0a1b2c3d4e5f6", strings.Repeat("a", 25)} {
		if _, err := ParseID(bad); err == nil {
			t.Errorf("ParseID(%q) accepted it", bad)
		}
	}
}

func TestDrawnBitsOfAPrefix(t *testing.T) {
	id := NewID(7, 0x2a5c3e1f09b7d)
	if got := id.Drawn(); got != 0x2a5c3e1f09b7d {
		t.Errorf("Drawn = %x, want 0x2a5c3e1f09b7d", got)
	}
	for _, none := range []ID{"", "k3v9", ID(strings.Repeat("!", idChars))} {
		if got := none.Drawn(); got != 0 {
			t.Errorf("%q has the bits %x, want 0", none, got)
		}
	}
	for n := range len(id) + 1 {
		low, high, ok := DrawnWith(string(id[:n]))
		if !ok || !strings.HasPrefix(string(NewID(7, low)), string(id[:min(n, uniqueChars)])) || low > id.Drawn() || high < id.Drawn() ||
			high-low != 1<<(5*max(0, uniqueChars-n))-1 {
			t.Errorf("%q: %x to %x, %v, want the range of the prefix", id[:n], low, high, ok)
		}
	}
	if _, _, ok := DrawnWith("k3u"); ok {
		t.Error("u is accepted in an id")
	}
}

func TestAttemptRoundTrip(t *testing.T) {
	a := Attempt{Job: NewID(7, 99), Task: 3, N: 12}
	got, err := ParseAttempt(a.String())
	if err != nil || got != a {
		t.Fatalf("ParseAttempt(%q) = %v, %v, want the same", a, got, err)
	}
	for _, bad := range []string{"", a.String() + ".1", string(a.Job) + ".-1.1", string(a.Job) + ".0.0", string(a.Job) + ".00.1"} {
		if _, err := ParseAttempt(bad); err == nil {
			t.Errorf("ParseAttempt(%q) accepted it", bad)
		}
	}
}

func FuzzParseAttempt(f *testing.F) {
	f.Add(Attempt{Job: NewID(7, 99), Task: 3, N: 12}.String())
	f.Fuzz(func(t *testing.T, s string) {
		if a, err := ParseAttempt(s); err == nil && a.String() != s {
			t.Errorf("ParseAttempt(%q) = %q, want the same text", s, a)
		}
	})
}

func TestLegalMovesOfATask(t *testing.T) {
	for _, from := range States() {
		for _, to := range States() {
			got, err := Task{State: from}.Move(to)
			if legal := slices.Contains(next[from], to); legal != (err == nil) {
				t.Errorf("%s to %s: %v, legal is %v, want %v", from, to, err, legal, (err == nil))
			} else if !legal && (got.State != from || !errors.Is(err, ErrBadMove)) {
				t.Errorf("the illegal move from %s to %s gave %s, %v, want ErrBadMove", from, to, got.State, err)
			}
		}
		if from.Code() == "" {
			t.Errorf("%s has no code", from)
		}
		if p, err := ParseState(strings.ToLower(from.Code())); err != nil || p != from {
			t.Errorf("ParseState(%q) = %s, %v, want no error and %v", from.Code(), p, err, from)
		}
	}
	for _, s := range []State{Succeeded, Cancelled} { // only a requeue by a person leaves them
		if !slices.Equal(next[s], []State{Pending, Held}) {
			t.Errorf("%s moves to %v, want %v", s, next[s], []State{Pending, Held})
		}
	}
}

func TestUnreachableTaskMayStillRun(t *testing.T) {
	if Unreachable.Ended() || !Unreachable.Active() || !Unreachable.CanMove(Running) {
		t.Error("an UNREACHABLE task must count as active, and may run again")
	}
}

func TestSizesAreParsed(t *testing.T) {
	for text, want := range map[string]Size{
		"8GiB": 8 << 30, "500MB": 500e6, "80GB": 80e9, "1.5GiB": 3 << 29, "12B": 12, "4G": 4 << 30, "2 TiB": 2 << 40, "64gib": 64 << 30, "1kB": 1000,
	} {
		got, err := ParseSize(text)
		if err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", text, got, err, want)
		}
		again, err := ParseSize(got.String())
		if err != nil || again != got {
			t.Errorf("%q prints as %q, which is %d, %v, want the same", text, got, again, err)
		}
	}
	for _, bad := range []string{"", "8", "GiB", "-1GiB", "8 GiBs", "99999999EiB", "1..5G", "NaNB"} {
		if got, err := ParseSize(bad); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", bad, got)
		}
	}
	if _, err := ParseSize("8"); !errors.Is(err, errNoUnit) || !strings.Contains(err.Error(), "8GiB") {
		t.Errorf("ParseSize(8): %v, want a hint to 8GiB", err)
	}
}

func TestDurationsAreParsed(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90m": 90 * time.Minute, "1h30m": 90 * time.Minute, "2d": 48 * time.Hour, "1d12h": 36 * time.Hour, "250ms": 250 * time.Millisecond, "0.5d": 12 * time.Hour,
	} {
		got, err := ParseDuration(text)
		if err != nil || got.D() != want {
			t.Errorf("ParseDuration(%q) = %s, %v; want %s", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "90", "1.5", "-3m", "d", "4x", "1d-2h", "9999999d", "36500d1s"} {
		if got, err := ParseDuration(bad); err == nil {
			t.Errorf("ParseDuration(%q) = %s, want an error", bad, got)
		}
	}
}

func FuzzUnits(f *testing.F) {
	f.Add("8GiB")
	f.Add("1d12h")
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := ParseSize(text); err == nil && s < 0 {
			t.Errorf("ParseSize(%q) = %d, want 0 or more", text, s)
		}
		if d, err := ParseDuration(text); err == nil && d < 0 {
			t.Errorf("ParseDuration(%q) = %d, want 0 or more", text, d)
		}
	})
}

func TestSelectorsAreParsed(t *testing.T) {
	for text, want := range map[string]Selector{
		"all": {All: true}, "last": {Last: true}, "last.3": {Last: true, Tasks: []Range{{3, 3}}},
		"7f3k2": {Prefix: "7f3k2"}, "7f3k2.0-9,12": {Prefix: "7f3k2", Tasks: []Range{{0, 9}, {12, 12}}},
	} {
		got, err := ParseSelector(text)
		if err != nil || got.All != want.All || got.Last != want.Last || got.Prefix != want.Prefix || !slices.Equal(got.Tasks, want.Tasks) {
			t.Errorf("ParseSelector(%q) = %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "UPPER", "a b", "7f3k2.", "7f3k2.9-3", "7f3k2.-1", "7f3k2.9999999999", "7f3k2.x", strings.Repeat("a", 40)} {
		if got, err := ParseSelector(bad); err == nil {
			t.Errorf("ParseSelector(%q) = %+v, want an error", bad, got)
		}
	}
	if s, _ := ParseSelector("7f.1-3"); s.Has(0) || !s.Has(2) {
		t.Error("7f.1-3 must contain 2 and not 0")
	}
}

func TestInvalidSpecIsRefused(t *testing.T) {
	good := DefaultSpec()
	good.Command = []string{"true"}
	if err := good.Validate(); err != nil {
		t.Fatalf("a plain job: %v", err)
	}
	for name, spoil := range map[string]func(*Spec){
		"command":             func(s *Spec) { s.Command = nil },
		"not both":            func(s *Spec) { s.Script = "x" },
		"zero byte":           func(s *Spec) { s.Command = []string{"a\x00"} },
		"printable":           func(s *Spec) { s.Name = "a\x1b[31m" },
		"name:":               func(s *Spec) { s.Name = strings.Repeat("é", 200) },
		"env":                 func(s *Spec) { s.Env = map[string]string{"A=B": "x"} },
		"params":              func(s *Spec) { s.Params = map[string]string{"": "x"} },
		"workdir":             func(s *Spec) { s.Workdir = "rel" },
		"priority":            func(s *Spec) { s.Priority = 101 },
		"retries":             func(s *Spec) { s.Retries = -1 },
		"lease":               func(s *Spec) { s.Lease = Duration(time.Second) },
		"partition":           func(s *Spec) { s.Partition = "x" },
		"gpu_share":           func(s *Spec) { s.Resources.GPUShare = 1 },
		"share of one device": func(s *Spec) { s.Resources.GPUShare, s.Resources.GPUs = 0.5, 1 },
		"gpus is 0":           func(s *Spec) { s.Resources.GPUModel = "H100" },
		"a name is empty":     func(s *Spec) { s.Resources.GPUs, s.Resources.GPUModel = 1, "H100|" },
		"not a name":          func(s *Spec) { s.Policy = "a\nb" },
		"constraint":          func(s *Spec) { s.Constraint = "a&" },
		"array":               func(s *Spec) { s.Array = "3-1" },
		"each_line":           func(s *Spec) { s.EachLine = []string{"a\x00"} },
		"prefer":              func(s *Spec) { s.Prefer = "rack=r1:0" },
		"nodelist":            func(s *Spec) { s.NodeList = []string{"n["} },
		"exclude":             func(s *Spec) { s.Exclude = []string{""} },
		"nodes -1":            func(s *Spec) { s.Nodes = -1 },
		"nodes 513":           func(s *Spec) { s.Nodes = MaxNodes + 1 },
		"ntasks_per_node":     func(s *Spec) { s.TasksPerNode = -1 },
		"elements of 512":     func(s *Spec) { s.Nodes, s.Array = MaxNodes, "0-99999" },
	} {
		s := good
		spoil(&s)
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: Validate returns %v, want an error that names the field", name, err)
		}
	}
	s := good
	s.Nodes, s.TasksPerNode, s.KeepOnBadExit, s.Array = MaxNodes, 8, true, "0-9%2"
	if err := s.Validate(); err != nil {
		t.Errorf("an array of gangs: %v", err)
	}
	s = good
	s.Image, s.Output = "i", "/o"
	if err := s.Validate(); err != nil {
		t.Errorf("output with an image: %v", err)
	}
}

func TestSpecJSONRoundTrip(t *testing.T) {
	s := DefaultSpec()
	s.Command, s.TimeLimit, s.Priority = []string{"a"}, Duration(90*time.Minute), 0
	s.Resources.Memory, s.Resources.GPUShare = 3<<29, 0.25
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	got := DefaultSpec()
	if err := json.Unmarshal(b, &got); err != nil || got.TimeLimit != s.TimeLimit || got.Priority != 0 || got.Resources != s.Resources {
		t.Errorf("%s came back as %+v, %v, want the same", b, got, err)
	}
}

func TestArgvHasTheParams(t *testing.T) {
	s := Spec{Command: []string{"train", "--lr={lr}", "{n}", "{other}", "{}"}, Params: map[string]string{"lr": "0.1", "n": "{lr}"}}
	if got := s.Argv(); !slices.Equal(got, []string{"train", "--lr=0.1", "{lr}", "{other}", "{}"}) {
		t.Errorf("Argv = %q, want %v", got, []string{"train", "--lr=0.1", "{lr}", "{other}", "{}"})
	}
}

func TestStateOfAJobOfSeveralTasks(t *testing.T) {
	of := func(states ...State) State {
		var j Job
		for _, s := range states {
			j.Tasks = append(j.Tasks, Task{State: s})
		}
		return j.State()
	}
	for want, states := range map[State][]State{
		Running: {Succeeded, Running, Failed}, Failed: {Succeeded, Failed}, Succeeded: {Succeeded, Succeeded}, Pending: {Failed, Pending},
	} {
		if got := of(states...); got != want {
			t.Errorf("%v: job is %s, want %s", states, got, want)
		}
	}
	if got := of(); got != Pending {
		t.Errorf("a job without tasks is %s, want %v", got, Pending)
	}
}

func TestEpochsAreOrderedByGenerationThenTerm(t *testing.T) {
	a, b, c := Epoch{1, 9}, Epoch{2, 1}, Epoch{2, 3}
	if !a.Less(b) || !b.Less(c) || c.Less(a) || a.Less(a) {
		t.Error("epochs must be ordered by generation, then by term")
	}
}

func TestDurationIsWrittenAndReadBack(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", 90 * time.Minute: "1h30m", time.Hour: "1h", 24 * time.Hour: "1d", 36 * time.Hour: "1d12h",
		24*time.Hour + 10*time.Second: "1d10s", time.Hour + 10*time.Second: "1h0m10s", 48*time.Hour + time.Minute: "2d1m", 20 * time.Minute: "20m",
		1500 * time.Millisecond: "1.5s", 70 * time.Hour: "2d22h", 100 * time.Second: "1m40s", -time.Hour: "-1h",
	} {
		text := Duration(d).String()
		if text != want {
			t.Errorf("%v is written %s, want %s", d, text, want)
		}
		if back, err := ParseDuration(text); d >= 0 && (err != nil || back.D() != d) {
			t.Errorf("%s is read as %v, %v, want the same", text, back, err)
		}
	}
}
