package usage_test

import (
	"math"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/usage"
	"github.com/musterhq/muster/job"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func sample(at time.Duration, values map[usage.Kind]float64) usage.Sample {
	s := usage.Sample{At: epoch.Add(at), Values: usage.Unknown()}
	for k, x := range values {
		s.Values[k] = x
	}
	return s
}

// A ring has the samples of the last hour and no more, in order, however long it is used.
func TestRingKeepsAnHour(t *testing.T) {
	var r usage.Ring
	const every = 5 * time.Second
	last := time.Duration(0)
	for i := range 2000 {
		last = time.Duration(i) * every
		values := map[usage.Kind]float64{usage.CPU: float64(i)}
		if i > 1500 {
			values[usage.GPU] = 7 // known from a later sample on
		}
		r.Add(sample(last, values))
	}
	p := r.Points(epoch.Add(last))
	if n := len(p.At); n != 720 {
		t.Fatalf("got %d samples, want 720, those of an hour", n)
	}
	for i, at := range p.At {
		if i > 0 && at.Sub(p.At[i-1]) != every {
			t.Fatalf("sample %d is %s after the one before, want %s", i, at.Sub(p.At[i-1]), every)
		}
		if want := float64(2000 - 720 + i); p.Columns[usage.CPU][i] != want {
			t.Fatalf("sample %d: got %g CPUs, want %g", i, p.Columns[usage.CPU][i], want)
		}
		if known := usage.Known(p.Columns[usage.GPU][i]); known != (2000-720+i > 1500) {
			t.Fatalf("sample %d: the GPU is known: got %t, want the opposite", i, known)
		}
	}
	if p.Columns[usage.Memory] != nil {
		t.Error("memory was never known and has a column")
	}
	if p := r.Points(epoch.Add(last + 2*time.Hour)); len(p.At) != 0 {
		t.Errorf("got %d samples of two hours ago, want 0", len(p.At))
	}
}

// After the clock was set back a ring begins again, so that no sample is later than the next one.
func TestRingBeginsAgainAfterTheClockWasSetBack(t *testing.T) {
	var r usage.Ring
	for i := range 800 {
		r.Add(sample(time.Duration(i)*time.Second, map[usage.Kind]float64{usage.CPU: 1}))
	}
	r.Add(sample(-time.Hour, map[usage.Kind]float64{usage.CPU: 2}))
	if p := r.Points(epoch.Add(-time.Hour)); len(p.At) != 1 || p.Columns[usage.CPU][0] != 2 {
		t.Errorf("got points %+v, want the last one alone", p)
	}
}

// A fold has at most 120 points however long a task runs, its mean is that of all samples, and a time without samples
// is unknown.
func TestFoldHasFewPointsAndTheTrueMean(t *testing.T) {
	for _, length := range []time.Duration{time.Minute, 10 * time.Minute, time.Hour, 30 * 24 * time.Hour} {
		f := usage.NewFold(epoch, 5*time.Second)
		n, sum := 0, 0.0
		for at := time.Duration(0); at < length; at += max(5*time.Second, length/5000) {
			x := float64(n % 10)
			n, sum = n+1, sum+x
			f.Add(sample(at, map[usage.Kind]float64{usage.CPU: x}))
		}
		r := f.Report()
		s := r.Series[usage.CPU]
		if len(s.Points) > usage.MaxPoints || r.Samples != uint64(n) || s.Known != uint64(n) {
			t.Errorf("%s: got %d points of %d samples, want at most %d of %d", length, len(s.Points), r.Samples, usage.MaxPoints, n)
		}
		if covered := time.Duration(len(s.Points)) * r.Step; covered < length-r.Step || covered > length+r.Step {
			t.Errorf("%s: the points cover %s, want all", length, covered)
		}
		if math.Abs(s.Mean-sum/float64(n)) > 1e-9 || s.Max != 9 {
			t.Errorf("%s: got mean %g, max %g, want %g, 9", length, s.Mean, s.Max, sum/float64(n))
		}
		if r.Series[usage.GPU].Known != 0 || usage.Known(r.Series[usage.GPU].Mean) {
			t.Errorf("%s: the GPU is known", length)
		}
	}
	f := usage.NewFold(epoch, 5*time.Second)
	f.Add(sample(0, map[usage.Kind]float64{usage.CPU: 1}))
	f.Add(sample(20*time.Second, map[usage.Kind]float64{usage.CPU: 3}))
	if p := f.Report().Series[usage.CPU].Points; len(p) != 5 || p[0] != 1 || usage.Known(p[1]) || p[4] != 3 {
		t.Errorf("points with a gap: got %v, want unknown values in the gap", p)
	}
}

// full returns a report of the greatest size.
func full() usage.Report {
	f := usage.NewFold(epoch, 5*time.Second)
	for i := range usage.MaxPoints {
		v := map[usage.Kind]float64{}
		for k := range usage.Kinds {
			v[k] = float64(1<<40 + i)
		}
		f.Add(sample(time.Duration(i)*5*time.Second, v))
	}
	r := f.Report()
	r.CPU, r.Read, r.Written = 1e9, 1<<59, 1<<59
	return r
}

// The largest report fits into the space that a result has for it.
func TestLargestReportFits(t *testing.T) {
	if usage.MaxBytes != job.UsageBytes {
		t.Errorf("a report may have %d bytes, want %d as in a result", usage.MaxBytes, job.UsageBytes)
	}
	b, err := full().Encode()
	if err != nil || len(b) > usage.MaxBytes {
		t.Fatalf("got %d bytes, %v, want at most usage.MaxBytes", len(b), err)
	}
	t.Logf("the largest report has %d bytes", len(b))
}

func TestReportSurvivesEncoding(t *testing.T) {
	f := usage.NewFold(epoch, 5*time.Second)
	f.Add(sample(0, map[usage.Kind]float64{usage.CPU: 0.5, usage.Memory: 1 << 30}))
	f.Add(sample(10*time.Second, map[usage.Kind]float64{usage.CPU: 2, usage.Memory: 3 << 30, usage.GPU: 0}))
	r := f.Report()
	r.CPU = 12.345
	b, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := usage.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if got.CPU != 12.345 || usage.Known(got.Read) || got.Samples != 2 || got.Step != 5*time.Second {
		t.Errorf("got report %+v, want the same values", got)
	}
	cpu, zero := got.Series[usage.CPU], got.Series[usage.GPU]
	if cpu.Mean != 1.25 || cpu.Max != 2 || len(cpu.Points) != 3 || cpu.Points[0] != 0.5 || usage.Known(cpu.Points[1]) || cpu.Points[2] != 2 {
		t.Errorf("CPU: got %+v, want the same values", cpu)
	}
	if zero.Known != 1 || zero.Mean != 0 || zero.Points[2] != 0 || usage.Known(zero.Points[0]) {
		t.Errorf("a GPU at 0 percent: got %+v, want it other than unknown", zero)
	}
}

// Whatever bytes another host sends, an accepted report is within its bounds, and can be encoded again.
func FuzzReport(f *testing.F) {
	b, err := full().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)/2])
	f.Add([]byte{8, 1, 16, 136, 39, 50, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := usage.Decode(b)
		if err != nil {
			return
		}
		if len(b) > usage.MaxBytes || r.Samples == 0 || r.Step <= 0 {
			t.Fatalf("got %d bytes: %+v, want a report in bounds", len(b), r)
		}
		for _, total := range []float64{r.CPU, r.Read, r.Written} {
			if total < 0 || math.IsInf(total, 0) {
				t.Fatalf("got total %g, want a finite one", total)
			}
		}
		for k, s := range r.Series {
			if len(s.Points) > usage.MaxPoints || s.Known > r.Samples || s.Known == 0 && usage.Known(s.Max) {
				t.Fatalf("%s: got %+v, want values in bounds", usage.Kind(k), s)
			}
			for _, p := range append([]float64{s.Max, s.Mean}, s.Points...) {
				if usage.Known(p) && !(p >= 0 && p < 1<<61) {
					t.Fatalf("%s: got value %g, want one in bounds", usage.Kind(k), p)
				}
			}
		}
		again, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := usage.Decode(again); err != nil {
			t.Fatal(err)
		}
	})
}
