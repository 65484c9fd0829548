package contract

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

func devices(n int, class string, memory job.Size) []gpu.Device {
	out := make([]gpu.Device, n)
	for i := range out {
		out[i] = gpu.Device{UUID: fmt.Sprintf("GPU-%d", i), Class: class, Memory: memory}
	}
	return out
}

func TestClassOfEachNeed(t *testing.T) {
	for _, c := range []struct {
		need job.Resources
		want string
	}{
		{job.Resources{CPUs: 1}, "worker"},
		{job.Resources{CPUs: 33}, "cpu/32"},
		{job.Resources{CPUs: 1, Memory: 300e9}, "mem/256"},
		{job.Resources{GPUs: 1}, "gpu"},
		{job.Resources{GPUs: 5}, "gpu/x4"},
		{job.Resources{GPUs: 2, GPUModel: "H100"}, "gpu/model/h100/x2"},
		{job.Resources{GPUs: 1, GPUModel: "NVIDIA H100-80GB"}, "gpu/model/h100-80gb"},
		{job.Resources{GPUs: 2, GPUModel: "H100|A100", GPUMemory: 40e9}, "gpu/mem/40/x2"},
		{job.Resources{GPUs: 2, GPUModel: "H100|A100"}, "gpu/x2"},
		{job.Resources{GPUs: 3, GPUMemory: 40e9}, "gpu/mem/40/x2"},
		{job.Resources{GPUs: 3, GPUMemory: 24e9}, "gpu/mem/24"},
		{job.Resources{GPUs: 3, GPUMemory: 79e9}, "gpu/mem/40/x2"},
		{job.Resources{GPUs: 3, GPUMemory: 81e9}, "gpu/mem/80"},
		{job.Resources{GPUShare: .5, GPUMemory: 10e9}, "gpu/mem/8"},
		{job.Resources{GPUShare: .5}, "gpu"},
	} {
		if got := ClassOf(c.need); got != c.want {
			t.Errorf("ClassOf(%+v) = %s, want %s", c.need, got, c.want)
		}
	}
}

func TestHostWithoutWorkerHasNoClasses(t *testing.T) {
	if got := Classes(Profile{CPUs: 64}); got != nil {
		t.Errorf("a host that runs no tasks advertises %v", got)
	}
}

// A host that can serve a request advertises the class in which the request searches.
func TestHostThatFitsAdvertisesTheClass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Profile{
			Worker: true,
			CPUs:   rapid.IntRange(1, 256).Draw(t, "cpus"),
			Memory: job.Size(rapid.IntRange(1, 2048).Draw(t, "memory")) * gigabyte,
			GPUs: devices(rapid.IntRange(0, 16).Draw(t, "gpus"), rapid.SampledFrom([]string{"h100-80gb", "a100-40gb", "t4"}).Draw(t, "class"),
				job.Size(rapid.IntRange(4, 200).Draw(t, "gpu memory"))*gigabyte),
		}
		if rapid.Bool().Draw(t, "labelled") {
			p.Labels = map[string]string{"rack": "r1"}
		}
		classes := Classes(p)
		if len(classes) > MaxClasses {
			t.Fatalf("%d classes: %v, want at most %v", len(classes), classes, MaxClasses)
		}
		need := job.Resources{
			CPUs:      rapid.IntRange(0, p.CPUs).Draw(t, "need cpus"),
			Memory:    job.Size(rapid.Int64Range(0, int64(p.Memory)).Draw(t, "need memory")),
			GPUs:      rapid.IntRange(0, len(p.GPUs)).Draw(t, "need gpus"),
			GPUModel:  rapid.SampledFrom([]string{"", "H100", "h100-80GB", "A100", "T4", "A100|T4", "H100 | NVIDIA T4"}).Draw(t, "model"),
			GPUMemory: job.Size(rapid.IntRange(0, 200).Draw(t, "need gpu memory")) * gigabyte,
		}
		for _, d := range p.GPUs {
			if !GPUMeets(d, need) {
				return
			}
		}
		if class := ClassOf(need); !slices.Contains(classes, class) {
			t.Fatalf("%+v fits, but %s is not among %v", need, class, classes)
		}
		for k, v := range p.Labels { // not all of them fit into what is advertised
			if all := AllClasses(p); !slices.Contains(all, LabelClass(k, v)) {
				t.Fatalf("the label %s=%s is not among %v", k, v, all)
			}
		}
	})
}

// A MIG instance serves a request that names it, by any of its names, and a request for any GPU. It is never one of
// several devices, and never counts as the whole GPU.
func TestMIGInstanceMeetsItsNamesAndAnyGPU(t *testing.T) {
	d := gpu.Device{
		UUID: "MIG-1", Parent: "GPU-1", Model: "NVIDIA H100 80GB HBM3 MIG 1g.10gb", Class: "h100-80gb-mig-1g.10gb", Memory: 10 << 30,
	}
	for _, c := range []struct {
		need job.Resources
		want bool
	}{
		{job.Resources{GPUs: 1}, true},
		{job.Resources{GPUs: 2}, false},
		{job.Resources{GPUs: 1, GPUModel: "1g.10gb"}, true},
		{job.Resources{GPUs: 1, GPUModel: "A100|1g.10gb"}, true},
		{job.Resources{GPUs: 1, GPUModel: "H100|2g.20gb"}, false},
		{job.Resources{GPUs: 1, GPUModel: "H100-80GB-MIG-1g.10gb"}, true},
		{job.Resources{GPUs: 1, GPUModel: "H100"}, false},
		{job.Resources{GPUs: 1, GPUModel: "2g.20gb"}, false},
		{job.Resources{GPUs: 1, GPUMemory: 20 << 30}, false},
		{job.Resources{GPUShare: .5}, true},
	} {
		if got := GPUMeets(d, c.need); got != c.want {
			t.Errorf("GPUMeets(%+v) = %v, want %v", c.need, got, c.want)
		}
	}
	classes := Classes(Profile{Worker: true, GPUs: []gpu.Device{d}})
	for _, want := range []string{"1g.10gb", "H100-80GB-MIG-1g.10gb"} {
		if class := ClassOf(job.Resources{GPUs: 1, GPUModel: want}); !slices.Contains(classes, class) {
			t.Errorf("%s is looked for as %s, not among %v", want, class, classes)
		}
	}
}

// A host can be found by its name, even if its other classes reach MaxClasses.
func TestHostIsFoundByItsName(t *testing.T) {
	p := Profile{Worker: true, Name: "n7", CPUs: 256, Memory: 2048e9, GPUs: devices(16, "h100-80gb-pcie-1", 80e9), Labels: map[string]string{}}
	for i := range MaxLabels {
		p.Labels[fmt.Sprint("k", i)] = "v"
	}
	if classes := Classes(p); !slices.Contains(classes, NameClass("n7")) || len(classes) > MaxClasses {
		t.Errorf("classes %v, want few, with %s", classes, NameClass("n7"))
	}
}

// A request may name several models. A device needs to be one of them.
func TestGPUMeetsOneOfSeveralModels(t *testing.T) {
	for _, c := range []struct {
		model, class string
		want         bool
	}{
		{"A100|H100", "h100-80gb", true},
		{"A100|H100", "a100-40gb", true},
		{"A100 | NVIDIA H100-80GB", "h100-80gb", true},
		{"A100|H100", "h100x", false},
		{"A100|T4", "h100-80gb", false},
		{"|", "h100-80gb", false},
	} {
		d := gpu.Device{Class: c.class, Model: c.class, Memory: 80e9}
		for _, model := range []string{c.model, ModelName(c.model)} {
			if got := GPUMeets(d, job.Resources{GPUs: 1, GPUModel: model}); got != c.want {
				t.Errorf("%q meets %q: %v, want %v", c.class, model, got, c.want)
			}
		}
		if got := gpu.Fits(d, job.Resources{GPUs: 1, GPUModel: c.model}); got != c.want {
			t.Errorf("%q fits %q: %v, want %v", c.class, c.model, got, c.want)
		}
	}
}

// An unusual architecture is a class. A host with unusual names advertises no class that others would refuse.
func TestUnusualNamesGiveValidClasses(t *testing.T) {
	p := Profile{Worker: true, Name: "n", Arch: "arm64", Labels: map[string]string{
		strings.Repeat("k", job.MaxName): strings.Repeat("v", job.MaxName), "rack": "r1",
	}, GPUs: []gpu.Device{{UUID: "a", Class: "h\u00e9 100"}}}
	classes := AllClasses(p)
	if !slices.Contains(classes, "arch/arm64") || !slices.Contains(classes, "label/rack=r1") {
		t.Errorf(`classes %v, want "arch/arm64" among them and "label/rack=r1" among them`, classes)
	}
	for _, c := range classes {
		if !IsClass(c) {
			t.Errorf("%q is advertised and is not a class", c)
		}
	}
	p.Arch = "amd64"
	if slices.ContainsFunc(Classes(p), func(c string) bool { return strings.HasPrefix(c, "arch/") }) {
		t.Errorf("the usual architecture is advertised: %v", Classes(p))
	}
}
