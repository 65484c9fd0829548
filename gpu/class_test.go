package gpu

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/job"
)

const mib = job.Size(1) << 20

func TestClassOfEachModel(t *testing.T) {
	for _, c := range []struct {
		model string
		mib   job.Size // as the driver reports it
		want  string
	}{
		{"NVIDIA H100 80GB HBM3", 81559, "h100-80gb"},
		{"NVIDIA H100 PCIe", 81559, "h100-80gb"},
		{"NVIDIA H100 NVL", 95830, "h100-94gb"},
		{"NVIDIA H200", 143771, "h200-141gb"},
		{"NVIDIA H200 NVL", 143771, "h200-141gb"},
		{"NVIDIA H20", 97871, "h20-96gb"},
		{"NVIDIA B200", 183359, "b200-180gb"},
		{"NVIDIA GB200", 189471, "gb200-186gb"},
		{"NVIDIA B300 SXM6 AC", 275040, "b300-288gb"},
		{"NVIDIA GH200 480GB", 97871, "gh200-96gb"},
		{"NVIDIA GH200 144G HBM3e", 146831, "gh200-144gb"},
		{"NVIDIA A100-SXM4-40GB", 40960, "a100-40gb"},
		{"NVIDIA A100-SXM4-80GB", 81920, "a100-80gb"},
		{"NVIDIA A100 80GB PCIe", 81920, "a100-80gb"},
		{"A100-SXM-80GB", 81251, "a100-80gb"},
		{"NVIDIA A100-PCIE-40GB", 40536, "a100-40gb"},
		{"NVIDIA A800-SXM4-80GB", 81920, "a800-80gb"},
		{"Tesla V100-SXM2-16GB", 16160, "v100-16gb"},
		{"Tesla V100-SXM2-32GB", 32768, "v100-32gb"},
		{"Tesla V100S-PCIE-32GB", 32768, "v100s-32gb"},
		{"Tesla P100-PCIE-16GB", 16280, "p100-16gb"},
		{"Tesla K80", 11441, "k80-12gb"},
		{"Tesla T4", 15360, "t4-16gb"},
		{"NVIDIA A10", 23028, "a10-24gb"},
		{"NVIDIA A10G", 23028, "a10g-24gb"},
		{"NVIDIA A16", 15356, "a16-16gb"},
		{"NVIDIA A2", 15356, "a2-16gb"},
		{"NVIDIA A30", 24576, "a30-24gb"},
		{"NVIDIA A40", 46068, "a40-48gb"},
		{"NVIDIA L4", 23034, "l4-24gb"},
		{"NVIDIA L40S", 46068, "l40s-48gb"},
		{"NVIDIA RTX A6000", 49140, "a6000-48gb"},
		{"NVIDIA RTX 6000 Ada Generation", 49140, "rtx6000ada-48gb"},
		{"Quadro RTX 6000", 24220, "rtx6000-24gb"},
		{"NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, "rtxpro6000-96gb"},
		{"NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 97887, "rtxpro6000-96gb"},
		{"NVIDIA GeForce RTX 4090", 24564, "rtx4090-24gb"},
		{"NVIDIA GeForce RTX 5090", 32607, "rtx5090-32gb"},
		{"NVIDIA GeForce RTX 4070 Ti SUPER", 16376, "rtx4070tisuper-16gb"},
		{"NVIDIA GeForce RTX 2080 Ti", 11264, "rtx2080ti-11gb"},
		{"NVIDIA GeForce GTX 1080 Ti", 11178, "gtx1080ti-11gb"},
		{"NVIDIA GeForce RTX 3080 Laptop GPU", 16384, "rtx3080laptop-16gb"},
		{"NVIDIA TITAN RTX", 24220, "titanrtx-24gb"},
		{"NVIDIA TITAN V", 12066, "titanv-12gb"},
		{"AMD Instinct MI300X", 196592, "mi300x-192gb"},
		{"NVIDIA H100 80GB HBM3 MIG 1g.10gb", 81559, "h100-80gb-mig-1g.10gb"},
		{"NVIDIA A100-SXM4-40GB MIG 3g.20gb", 40960, "a100-40gb-mig-3g.20gb"},
		{"NVIDIA H200 MIG 1g.18gb+me", 143771, "h200-141gb-mig-1g.18gb+me"},
		{"Mock NVIDIA A100-SXM4-40GB", 40960, "a100-40gb"},
		{"H100-80GB", 0, "h100-80gb"},
		{"H100 80 GB", 0, "h100-80gb"},
		{"H100", 0, "h100"},
		{"NVIDIA", 0, ""},
		{"", 81559, ""},
		{"80GB", 0, "80gb"},
	} {
		if got := Class(c.model, c.mib*mib); got != c.want {
			t.Errorf("Class(%q, %d MiB) = %q, want %q", c.model, c.mib, got, c.want)
		}
	}
	if got := Class(strings.Repeat("x", 1000), 0); len(got) > maxClass {
		t.Errorf("a class of %d letters, want at most %v", len(got), maxClass)
	}
}

func TestModelsMatchClasses(t *testing.T) {
	for _, c := range []struct {
		want, class string
		match       bool
	}{
		{"H100", "h100-80gb", true},
		{"h100", "h100-80gb", true},
		{"H100-80GB", "h100-80gb", true},
		{"H100_80GB", "h100-80gb", true},
		{"NVIDIA H100 80GB HBM3", "h100-80gb", true},
		{"Tesla T4", "t4-16gb", true},
		{"RTX 4090", "rtx4090-24gb", true},
		{"RTX-4090", "rtx4090-24gb", true},
		{"RTX A6000", "a6000-48gb", true},
		{"A6000", "a6000-48gb", true},
		{"H10", "h100-80gb", false},
		{"H100-8", "h100-80gb", false},
		{"H100-94GB", "h100-80gb", false},
		{"H1000", "h100-80gb", false},
		{"H200", "h100-80gb", false},
		{"A10", "a100-40gb", false},
		{"A10", "a10g-24gb", false},
		{"rtx6000", "rtx6000ada-48gb", false},
		{"80GB", "h100-80gb", false},
		{"", "h100-80gb", false},
		{"-", "h100-80gb", false},
		{"NVIDIA", "h100-80gb", false},
		{"H100", "", false},
		{"H100", "h100-80gb-mig-1g.10gb", false},
		{"1g.10gb", "h100-80gb-mig-1g.10gb", true},
		{"MIG", "h100-80gb-mig-1g.10gb", true},
		{"mig-1g.10gb", "h100-80gb-mig-1g.10gb", true},
		{"H100-80GB-MIG", "h100-80gb-mig-1g.10gb", true},
		{"H100-80GB-MIG-1g.10gb", "h100-80gb-mig-1g.10gb", true},
		{"NVIDIA H100 80GB HBM3 MIG 1g.10gb", "h100-80gb-mig-1g.10gb", true},
		{"H100-80GB-MIG-2g.20gb", "h100-80gb-mig-1g.10gb", false},
	} {
		if got := Match(c.want, c.class); got != c.match {
			t.Errorf("Match(%q, %q) = %v", c.want, c.class, got)
		}
	}
}

func TestIsKnowsEachFormOfAName(t *testing.T) {
	sxm := Device{Model: "NVIDIA A100-SXM4-40GB", Memory: 40960 * mib, Class: "a100-40gb"}
	for want, is := range map[string]bool{"A100": true, "A100 SXM": true, "A100-SXM4": true, "A100-SXM4-40GB": true, "A100 PCIe": false, "A100-SXM5": false} {
		if sxm.Is(want) != is {
			t.Errorf("%s is %q: %v", sxm.Model, want, !is)
		}
	}
	if !(Device{Model: "Tesla T4"}).Is("t4") {
		t.Error("a device without a class does not match its model name")
	}
}

func FuzzClass(f *testing.F) {
	f.Add("NVIDIA H100 80GB HBM3 MIG 1g.10gb", int64(81559<<20))
	f.Fuzz(func(t *testing.T, model string, memory int64) {
		c := Class(model, job.Size(memory))
		if len(c) > maxClass || strings.Trim(c, "abcdefghijklmnopqrstuvwxyz0123456789.+-") != "" {
			t.Errorf("Class(%q, %d) = %q, want a bounded word", model, memory, c)
		}
		Match(model, c)
	})
}
