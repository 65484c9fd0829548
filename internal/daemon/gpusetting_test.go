package daemon

// The GPUs that the setting gpus selects.

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/gpu/gputest"
)

func TestSettingOfGPUsIsParsed(t *testing.T) {
	for text, want := range map[string]string{
		"auto": "[]", "0": "[0]", "0, 1,09": "[0 1 9]", "GPU-5e1c": "[GPU-5e1c]", "MIG-41b5,3,GPU-77": "[MIG-41b5 3 GPU-77]",
	} {
		if _, only, err := parseGPUs(text, "n"); err != nil || fmt.Sprint([]string(only)) != want {
			t.Errorf("%q: got %v, %v, want %s", text, only, err, want)
		}
	}
	for _, text := range []string{"", "all", "-1", "0,,1", "GPU-", "GPU", "0-3", "sim", "0;1", "GPU-a b-c", strings.Repeat("0,", maxSelected) + "0"} {
		if _, only, err := parseGPUs(text, "n"); err == nil {
			t.Errorf("%.40q was accepted: got %v, want an error", text, only)
		}
	}
	if sim, _, err := parseGPUs("none", "n"); err != nil || sim == nil {
		t.Fatalf("none: got %v, want no error", err)
	} else if all, err := sim.List(t.Context()); err != nil || all != nil {
		t.Errorf("none: got %v, %v, want no GPUs", all, err)
	}
}

func TestSelectionPicksNamedGPUs(t *testing.T) {
	listed := []gpu.Device{
		{UUID: "GPU-5e1c0000", Index: 0},
		{UUID: "GPU-5e1d0000", Index: 1},
		{UUID: "MIG-41b50000", Index: 2, Parent: "GPU-77770000"},
		{UUID: "MIG-41b60000", Index: 2, Parent: "GPU-77770000"},
		{UUID: "GPU-9", Index: 3},
		{UUID: "GPU-99", Index: 4},
	}
	for text, c := range map[string]struct{ selected, missing string }{
		"auto":              {"0 1 2 2 3 4", ""},
		"1":                 {"1", ""},
		"4,0":               {"0 4", ""}, // in the order of the driver
		"2":                 {"2 2", ""}, // all instances of the GPU
		"GPU-5e1c":          {"0", ""},
		"gpu-5E1D":          {"1", ""},
		"GPU-7777":          {"2 2", ""},
		"MIG-41b6,GPU-5e1d": {"1 2", ""},
		"GPU-9":             {"3", ""}, // a whole UUID, though it is also the beginning of another
		"0,GPU-5e1c":        {"0", ""},
		"0,9":               {"0", "no GPU has the index 9; this host has 0 GPU-5e1c0000, 1 GPU-5e1d0000"},
		"GPU-5e1":           {"", "GPU-5e1 is the beginning of 2 UUIDs"},
		"MIG-9,GPU-88,1":    {"1", "no GPU has the UUID MIG-9, no GPU has the UUID GPU-88"},
	} {
		_, only, err := parseGPUs(text, "n")
		if err != nil {
			t.Fatal(err)
		}
		selected, missing := only.of(listed)
		var got []string
		for _, d := range selected {
			got = append(got, fmt.Sprint(d.Index))
		}
		if strings.Join(got, " ") != c.selected || (missing == "") != (c.missing == "") || !strings.Contains(missing, c.missing) {
			t.Errorf("%s selects %v, missing %q; want %s, %q", text, got, missing, c.selected, c.missing)
		}
		if none, missing := only.of(nil); len(none) > 0 || missing != "" {
			t.Errorf("%s of no GPUs: got %v, missing %q, want nothing", text, none, missing)
		}
	}
	many := gputest.Devices(64, "GPU", "NVIDIA H100 80GB HBM3", 80<<30)
	if _, missing := (selection{"99"}).of(many); len(missing) > 400 || !strings.HasSuffix(missing, "48 more") {
		t.Errorf("of 64: got %s, want a short text that counts the rest", missing)
	}
}

// A named GPU that does not exist is an error at the start, if the driver lists others. If the driver works only later,
// the daemon goes on with the GPUs that exist, and reports the others.
func TestMissingNamedGPUIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		two := gputest.Devices(2, "GPU", "NVIDIA H100 80GB HBM3", 80<<30)
		log := &strings.Builder{}
		driver := gputest.New(two...)
		d := &devices{driver: driver, only: selection{"0", "9"}, poll: make(chan struct{}, 1), relist: make(chan struct{}, 1), log: slog.New(slog.NewTextHandler(log, nil))}
		d.list(t.Context(), firstWait)
		err := d.missing()
		if err == nil || !strings.Contains(err.Error(), "gpus") || !strings.Contains(err.Error(), "no GPU has the index 9; this host has 0 GPU-0, 1 GPU-1") || strings.Contains(err.Error(), "\n") {
			t.Fatalf("at the start: got %v, want one line with the index and the GPUs", err)
		}

		log.Reset()
		driver = gputest.New()
		d = &devices{driver: driver, only: selection{"0", "9"}, poll: make(chan struct{}, 1), relist: make(chan struct{}, 1), log: slog.New(slog.NewTextHandler(log, nil))}
		for _, driverFails := range []error{nil, errors.New("no answer")} {
			driver.Fail(driverFails)
			d.list(t.Context(), firstWait)
			if err := d.missing(); err != nil {
				t.Fatalf("without a driver (%v): got %v, want no error", driverFails, err)
			}
		}
		driver.Fail(nil)
		driver.Set(two...)
		for range 3 {
			time.Sleep(listEvery)
			d.list(t.Context(), listTimeout)
		}
		if all, err := d.listed(); err != nil || len(all) != 1 || all[0].UUID != "GPU-0" {
			t.Errorf("got %v, %v, want GPU-0", all, err)
		}
		if f := gpuFact(Config{}, d); f.State != api.FactFail || !strings.Contains(f.Detail, "index 9") || f.Advice == "" {
			t.Errorf("doctor: got %+v, want a failure with index 9 and advice", f)
		}
		if n := strings.Count(log.String(), "are not there"); n != 1 {
			t.Errorf("got %d warnings, want 1: %s", n, log)
		}
		d.only = selection{"0", "1"}
		if d.list(t.Context(), listTimeout); d.missing() != nil {
			t.Error(d.missing())
		}
	})
}
