package contract_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

func TestLevelOfEachKindOfWork(t *testing.T) {
	for _, c := range []struct {
		work contract.Work
		want int
	}{
		{contract.Work{}, 0},
		{contract.Work{By: contract.ByAge, Time: time.Hour}, 0},
		{contract.Work{By: contract.ByAttained, Time: 59 * time.Minute}, 0},
		{contract.Work{By: contract.ByAttained, Time: time.Hour}, 1},
		{contract.Work{By: contract.ByAttained, Time: 3 * time.Hour}, 2},
		{contract.Work{By: contract.ByAttained, Time: contract.MaxWork}, 20},
		{contract.Work{By: contract.ByRemaining, Time: 59 * time.Second}, 0},
		{contract.Work{By: contract.ByRemaining, Time: 7 * time.Minute}, 3},
		{contract.Work{By: contract.ByRemaining, Time: contract.MaxWork}, 26},
	} {
		if got := c.work.Level(); got != c.want {
			t.Errorf("%+v: level %d, want %d", c.work, got, c.want)
		}
	}
	for need, want := range map[job.Resources]int{{CPUs: 64}: 1000, {GPUs: 4}: 4000, {GPUShare: 0.25}: 250} {
		if got := contract.Width(need, 0); got != want {
			t.Errorf("%+v: width %d, want %d", need, got, want)
		}
		if got := contract.Width(need, 3); got != 3*want {
			t.Errorf("%+v, gang of 3: width %d, want %v", need, got, 3*want)
		}
	}
}

// The present level of an attempt changes in one direction only, is computed rarely, and is 0 for MinRun, whatever its
// owner said.
func TestPresentLevelMovesOneWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := contract.Work{By: contract.OrderBy(rapid.IntRange(0, 2).Draw(t, "by"))}
		if w.By != contract.ByAge {
			w.Time = time.Duration(rapid.Int64Range(0, int64(contract.MaxWork)).Draw(t, "work")) >> rapid.IntRange(0, 62).Draw(t, "shift")
		}
		offered := 0
		if w.By != contract.ByAge {
			offered = rapid.IntRange(0, contract.MaxLevel).Draw(t, "level")
		}
		width := rapid.IntRange(1, job.MaxGPUs*1000).Draw(t, "width")
		was, looks := -1, 0
		for ran := time.Duration(0); ran < 100*365*24*time.Hour; looks++ {
			level, keeps := w.Present(offered, width, ran)
			switch {
			case level < 0 || level > contract.MaxLevel || keeps < 0:
				t.Fatalf("after %s: level %d for %s, want at least 0, at most %v and at least 0", ran, level, keeps, contract.MaxLevel)
			case ran < contract.MinRun && w.By != contract.ByAge && level > 0 && offered >= w.Level():
				t.Fatalf("after %s the attempt could be preempted: level %d, want 0", ran, level)
			case ran > contract.MinRun && w.By == contract.ByAttained && level < was,
				ran > contract.MinRun && w.By == contract.ByRemaining && level > was:
				t.Fatalf("level %d after %d, at %s, want it to change in one direction", level, was, ran)
			case looks > 300:
				t.Fatalf("looked at %d times in %s, want at most 300", looks, ran)
			}
			if keeps == 0 {
				return
			}
			was, ran = level, ran+keeps
		}
	})
}

// A task that waited for long keeps its place until it has had as much again.
func TestTaskKeepsItsLevelAfterALongWait(t *testing.T) {
	w := contract.Work{By: contract.ByAttained, Time: 100 * time.Hour}
	for ran, want := range map[time.Duration]int{0: 0, time.Hour: 0, 24 * time.Hour: 0, 26 * time.Hour: 7} {
		if got, _ := w.Present(0, 4000, ran); got != want {
			t.Errorf("after %s: level %d, want %d", ran, got, want)
		}
	}
	if got, _ := w.Present(w.Level(), 4000, time.Hour); got != 6 {
		t.Errorf("one that did not: level %d, want 6", got)
	}
}
