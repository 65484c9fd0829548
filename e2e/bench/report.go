package main

// What was measured, as values and as text.

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/host"
)

// report is the document of -json.
type report struct {
	Date    time.Time `json:"date"`
	Machine string    `json:"machine"`
	Figures []figure  `json:"figures"`
}

// figure is one row of the table of docs/benchmarks.md.
type figure struct {
	Name   string  `json:"name"`
	What   string  `json:"what"`
	Unit   string  `json:"unit"`
	Values []value `json:"values"`
	Raw    []value `json:"raw,omitempty"`
	Aim    string  `json:"aim,omitempty"`
}

// value is one number of a figure. Its label is empty if the figure has no other.
type value struct {
	Label    string    `json:"label"`
	Readings []float64 `json:"readings"`
}

// newReport has every figure of the table, without values.
func newReport(machine string) *report {
	return &report{Date: time.Now().UTC().Truncate(time.Second), Machine: machine, Figures: figures()}
}

// value adds a reading to a figure. The name is one of the table.
func (r *report) value(name, label string, reading float64) {
	f := r.figure(name)
	f.Values = addReading(f.Values, label, reading)
}

// raw adds a reading of what the machine does at best.
func (r *report) raw(name, label string, reading float64) {
	f := r.figure(name)
	f.Raw = addReading(f.Raw, label, reading)
}

func (r *report) figure(name string) *figure {
	i := slices.IndexFunc(r.Figures, func(f figure) bool { return f.Name == name })
	return &r.Figures[i]
}

func addReading(values []value, label string, reading float64) []value {
	i := slices.IndexFunc(values, func(v value) bool { return v.Label == label })
	if i < 0 {
		return append(values, value{label, []float64{reading}})
	}
	values[i].Readings = append(values[i].Readings, reading)
	return values
}

// times adds the median and other quantiles of durations, in milliseconds; a quantile of 1 is the longest.
func times(add func(name, label string, reading float64), name string, took []time.Duration, quantiles ...float64) {
	for _, q := range quantiles {
		label := "max"
		if q < 1 {
			label = fmt.Sprintf("p%.0f", 100*q)
		}
		add(name, label, ms(quantile(took, q)))
	}
}

func quantile(d []time.Duration, q float64) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[min(len(d)-1, int(q*float64(len(d))))]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// dropEmpty removes the figures that were not measured.
func (r *report) dropEmpty() {
	r.Figures = slices.DeleteFunc(r.Figures, func(f figure) bool { return len(f.Values) == 0 })
}

// print writes a table for people.
func (r *report) print(out io.Writer) error {
	if _, err := fmt.Fprintf(out, "%s, %s\n\n", r.Date.Format(time.RFC3339), r.Machine); err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tMEASURED\tRAW LIMIT\tAIM")
	for _, f := range r.Figures {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", f.Name, f.text(f.Values), f.text(f.Raw), f.Aim)
	}
	return w.Flush()
}

// text is for instance "p50 2.8 to 4.3, p99 6.4 ms"; empty without values.
func (f figure) text(values []value) string {
	if len(values) == 0 {
		return ""
	}
	var parts []string
	for _, v := range values {
		low, high := number(slices.Min(v.Readings)), number(slices.Max(v.Readings))
		part := low
		if low != high {
			part += " to " + high
		}
		parts = append(parts, strings.TrimSpace(v.Label+" "+part))
	}
	return strings.Join(parts, ", ") + " " + f.Unit
}

// number has three digits that count, and a comma after thousands.
func number(v float64) string {
	if v < 100 && v > -100 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// machine says on what the figures are measured.
func machine(ctx context.Context) (string, error) {
	info, err := host.InfoWithContext(ctx)
	if err != nil {
		return "", err
	}
	model := "unknown processor"
	if cpus, err := cpu.InfoWithContext(ctx); err == nil && len(cpus) > 0 {
		model = cpus[0].ModelName
	}
	return fmt.Sprintf("%s, %d cores, %s %s, %s", model, runtime.NumCPU(), info.OS, info.KernelVersion, runtime.Version()), nil
}
