package fleet

import (
	"fmt"
	"testing"

	"github.com/musterhq/muster/job"
)

// However many needs of however many users are declined, little is remembered of them, and the newest counts.
func TestQuotasAreBounded(t *testing.T) {
	var qs Quotas
	for i := range 2 * maxQuotas {
		user := fmt.Sprint("u", i)
		for n := range 3 * quotaMost { // none is larger than another
			need := job.Resources{CPUs: n + 1, Memory: job.Size(3*quotaMost - n)}
			times, forgotten := qs.refuse(user, need, "over")
			if want := fmt.Sprint("u", i-maxQuotas); times != n+1 || n == 0 && i >= maxQuotas && forgotten != want {
				t.Fatalf("refusal %d of %s: %d times, %q forgotten", n, user, times, forgotten)
			}
			if qs.Over(user, need) != "over" {
				t.Fatalf("%+v of %s is not over the quota", need, user)
			}
		}
		if n := len(qs.users[user].refused); n > quotaMost {
			t.Fatalf("%d needs are remembered, want at most %v", n, quotaMost)
		}
	}
	if qs.Users() != maxQuotas {
		t.Errorf("%d users are remembered, want %v", qs.Users(), maxQuotas)
	}
}

// Once the user may hold more, one claim probes for all. Its result decides whether the next one may.
func TestOneClaimProbesAnOpenQuota(t *testing.T) {
	var qs Quotas
	need := job.Resources{CPUs: 2}
	qs.refuse("amy", need, "")
	if qs.Over("amy", need) == "" || qs.Over("amy", job.Resources{CPUs: 1}) != "" || qs.Over("bob", need) != "" {
		t.Fatal("a refusal must hold for the refused need of its user, and for no other")
	}
	qs.Ease("amy")
	if !qs.Open("amy") || qs.Open("bob") || qs.Over("amy", need) != "" {
		t.Fatal("an open quota does not allow a claim")
	}
	probe := &Claim{ID: 7, User: "amy", Need: need}
	qs.ask(probe)
	if !qs.IsProbe(probe) || qs.Over("amy", need) == "" {
		t.Fatal("a second claim may probe")
	}
	if !qs.Probed(probe) || qs.Probed(probe) || qs.Over("amy", need) != "" {
		t.Fatal("no claim may probe after the first")
	}
	if times, _ := qs.refuse("amy", need, "still"); times != 1 || qs.Over("amy", need) != "still" {
		t.Fatalf("refused %d times since the user held less, want 1 and \"still\"", times)
	}
}

// A host may decline many offers of a user at once. They count as one refusal, so that the pause does not grow to its
// maximum at once. After the quota was opened the next refusal counts again.
func TestRefusalsAtOnceCountOnce(t *testing.T) {
	need := job.Resources{CPUs: 2}
	for name, refuse := range map[string]func(*Quotas) int{
		"quota":   func(qs *Quotas) int { times, _ := qs.refuse("amy", need, "over"); return times },
		"account": func(qs *Quotas) int { times, _ := qs.refuseUser("amy"); return times },
	} {
		var qs Quotas
		for range 8 {
			if times := refuse(&qs); times != 1 {
				t.Fatalf("%s: %d refusals, want 1", name, times)
			}
		}
		qs.Open("amy")
		for range 8 {
			if times := refuse(&qs); times != 2 {
				t.Fatalf("%s: %d refusals after it was opened, want 2", name, times)
			}
		}
	}
}
