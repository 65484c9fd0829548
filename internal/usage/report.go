package usage

// Report: what was measured of a task, and how it travels.

import (
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/internal/usage/usagepb"
)

const (
	// MaxBytes bounds an encoded report. Ten series of MaxPoints points of two bytes need 2.7 KB.
	MaxBytes = 4 << 10
	// maxStep bounds the time between points. No task takes longer.
	maxStep = 1000 * 24 * time.Hour
	// maxValue bounds every value: 1 EiB.
	maxValue = 1 << 60
	// scale is the number of levels of a point, from 0 to the greatest value.
	scale = 1000
)

// ErrReport says that bytes are not a report. Do not use them.
var ErrReport = errors.New("usage: not a report")

// Report is what was measured of a task during its life. A total is NaN if it is not known.
type Report struct {
	Samples uint64        // how often the task was measured
	Step    time.Duration // between two points
	CPU     float64       // seconds of CPU time
	Read    float64       // bytes from disks
	Written float64       // bytes to disks
	Series  [Kinds]Series
}

// Series is one kind of a report. Known is 0 if no value was ever known; then Mean and Max are NaN. A series without points
// has only a greatest value; then Mean is NaN.
type Series struct {
	Mean, Max float64
	Known     uint64    // number of samples
	Points    []float64 // at most MaxPoints; NaN: not known
}

// NewReport returns a report without any known value.
func NewReport() Report {
	r := Report{CPU: math.NaN(), Read: math.NaN(), Written: math.NaN()}
	for k := range r.Series {
		r.Series[k].Mean, r.Series[k].Max = math.NaN(), math.NaN()
	}
	return r
}

// Encode returns the report in at most MaxBytes bytes. Points lose precision: they are exact to a thousandth of the
// greatest value.
func (r Report) Encode() ([]byte, error) {
	m := &usagepb.Report{
		Samples: r.Samples, StepMs: uint64(r.Step.Milliseconds()),
		CpuMs: whole(r.CPU * 1000), Read: whole(r.Read), Written: whole(r.Written),
	}
	for k, s := range r.Series {
		if s.Known == 0 {
			continue
		}
		x := &usagepb.Series{Kind: uint32(k), Mean: s.Mean, Max: s.Max, Known: s.Known}
		if len(s.Points) == 0 { // earlier versions refuse a series without a mean
			x.Mean = s.Max
		}
		for _, p := range s.Points {
			x.Points = append(x.Points, level(p, s.Max))
		}
		m.Series = append(m.Series, x)
	}
	b, err := proto.Marshal(m)
	if err == nil && len(b) > MaxBytes {
		err = fmt.Errorf("%w: %d bytes, at most %d", ErrReport, len(b), MaxBytes)
	}
	return b, err
}

// whole returns a total as it is encoded.
func whole(x float64) *uint64 {
	if !Known(x) || x < 0 || x > maxValue {
		return nil
	}
	return new(uint64(math.Round(x)))
}

// level encodes a point.
func level(p, most float64) uint32 {
	switch {
	case !Known(p):
		return 0
	case most <= 0:
		return 1
	}
	return 1 + uint32(math.Round(min(max(p/most, 0), 1)*scale))
}

// Decode decodes and checks a report of another host. It returns ErrReport for anything that Encode could not have
// returned. A series of a newer version is left out.
func Decode(b []byte) (Report, error) {
	r := NewReport()
	if len(b) > MaxBytes {
		return r, fmt.Errorf("%w: %d bytes, at most %d", ErrReport, len(b), MaxBytes)
	}
	var m usagepb.Report
	if err := proto.Unmarshal(b, &m); err != nil {
		return r, fmt.Errorf("%w: %w", ErrReport, err)
	}
	if step := m.GetStepMs(); step == 0 || step > uint64(maxStep.Milliseconds()) || m.GetSamples() == 0 || m.GetSamples() > maxValue {
		return r, fmt.Errorf("%w: %d samples, a point every %d ms", ErrReport, m.GetSamples(), step)
	}
	r.Samples, r.Step = m.GetSamples(), time.Duration(m.GetStepMs())*time.Millisecond //nolint:gosec // bounded above
	totals := []struct {
		from *uint64
		to   *float64
		unit float64
	}{{m.CpuMs, &r.CPU, 1000}, {m.Read, &r.Read, 1}, {m.Written, &r.Written, 1}}
	for _, t := range totals {
		if t.from == nil {
			continue
		}
		if *t.from > maxValue {
			return NewReport(), fmt.Errorf("%w: a total of %d", ErrReport, *t.from)
		}
		*t.to = float64(*t.from) / t.unit
	}
	for _, x := range m.GetSeries() {
		k := Kind(min(x.GetKind(), uint32(Kinds))) //nolint:gosec // bounded
		if k >= Kinds {
			continue
		}
		s, err := decodeSeries(x)
		if err == nil && (r.Series[k].Known > 0 || s.Known > r.Samples) {
			err = fmt.Errorf("%w: series %s", ErrReport, k)
		}
		if err != nil {
			return NewReport(), err
		}
		r.Series[k] = s
	}
	return r, nil
}

func decodeSeries(x *usagepb.Series) (Series, error) {
	s := Series{Mean: x.GetMean(), Max: x.GetMax(), Known: x.GetKnown()}
	// The mean is a sum that was divided: it may exceed the greatest value by a rounding error.
	if s.Known == 0 || !(s.Max >= 0 && s.Max <= maxValue && s.Mean >= 0 && s.Mean <= s.Max*(1+1e-9)) || len(x.GetPoints()) > MaxPoints {
		return s, fmt.Errorf("%w: series %d: mean %g, max %g of %d, %d points", ErrReport, x.GetKind(), s.Mean, s.Max, s.Known, len(x.GetPoints()))
	}
	for _, p := range x.GetPoints() {
		switch {
		case p == 0:
			s.Points = append(s.Points, math.NaN())
		case p > scale+1:
			return s, fmt.Errorf("%w: a point of %d", ErrReport, p)
		default:
			s.Points = append(s.Points, s.Max*float64(p-1)/scale)
		}
	}
	if len(s.Points) == 0 {
		s.Mean = math.NaN()
	}
	return s, nil
}
