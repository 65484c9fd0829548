package job

import "testing"

// Only two known boots that differ show that a host has restarted.
func TestOnlyTwoKnownBootsShowARestart(t *testing.T) {
	for _, c := range []struct {
		was, now string
		want     bool
	}{{"", "", false}, {"", "b", false}, {"a", "", false}, {"a", "a", false}, {"a", "b", true}} {
		if got := (Fencing{Boot: c.was}).Restarted(Fencing{Certain: true, Boot: c.now}); got != c.want {
			t.Errorf("from %q to %q: %v, want %v", c.was, c.now, got, c.want)
		}
	}
	for f, want := range map[Fencing]string{{}: "unknown", {Certain: true}: "unknown", {Boot: "a"}: "no", {Certain: true, Boot: "a"}: "yes"} {
		if f.String() != want {
			t.Errorf("%+v is %s, want String() %v", f, f, want)
		}
	}
}
