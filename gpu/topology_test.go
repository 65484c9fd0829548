package gpu

// Choices on real machines, from recorded topologies.

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var topoKinds = map[string]LinkKind{"PIX": LinkSwitch, "PXB": LinkSwitch, "PHB": LinkBridge, "NODE": LinkNUMA, "SYS": LinkSystem}

// nodesPerSocket is the number of NUMA nodes of each processor socket. It is not part of the matrices.
var nodesPerSocket = map[string]int{"dgx-a100": 4, "dgx-h100": 1, "pcie-4": 1, "pcie-8": 1}

// recorded reads a matrix of nvidia-smi topo -m: GPU0, GPU1 and so on.
func recorded(t *testing.T, name, model string) []Device {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "topology", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var devices []Device
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if !strings.HasPrefix(lines.Text(), "GPU") {
			continue // the heading, and text about the matrix
		}
		cells := strings.Split(lines.Text(), "\t")
		node, err := strconv.Atoi(cells[len(cells)-1])
		if err != nil {
			t.Fatal(err)
		}
		d := Device{UUID: cells[0], Index: len(devices), Model: model, Class: Class(model, 80*gib), Memory: 80 * gib, NUMA: node, Socket: 1 + node/nodesPerSocket[name]}
		for j, cell := range cells[1 : len(cells)-2] {
			cell = strings.TrimSpace(cell)
			if cell == "X" {
				continue
			}
			l := Link{To: fmt.Sprintf("GPU%d", j), Kind: topoKinds[cell]}
			if n, isNVLink := strings.CutPrefix(cell, "NV"); isNVLink {
				if l.NVLinks, err = strconv.Atoi(n); err != nil {
					t.Fatal(err)
				}
				l.Kind = LinkNVLink
			}
			if l.Kind == "" {
				t.Fatalf("%s: unknown link %q", name, cell)
			}
			d.Links = append(d.Links, l)
		}
		devices = append(devices, d)
	}
	return devices
}

func TestChoicesOnRecordedTopologies(t *testing.T) {
	for _, c := range []struct {
		machine string
		devices int
		taken   []string
		n       int
		want    string
	}{
		// All links are equal, so the NUMA nodes of the GPUs decide.
		{"dgx-a100", 8, nil, 2, "GPU0 GPU1"},
		{"dgx-a100", 8, []string{"GPU0"}, 2, "GPU2 GPU3"},
		{"dgx-a100", 8, []string{"GPU0", "GPU2", "GPU4"}, 2, "GPU6 GPU7"},
		// Its sockets have four NUMA nodes each. Four GPUs come from one socket if possible, otherwise three and one.
		{"dgx-a100", 8, nil, 4, "GPU0 GPU1 GPU2 GPU3"},
		{"dgx-a100", 8, []string{"GPU1"}, 4, "GPU4 GPU5 GPU6 GPU7"},
		{"dgx-a100", 8, []string{"GPU0", "GPU6"}, 4, "GPU1 GPU2 GPU3 GPU4"},
		{"dgx-a100", 8, []string{"GPU0", "GPU1", "GPU2"}, 4, "GPU4 GPU5 GPU6 GPU7"},
		{"dgx-a100", 8, []string{"GPU1", "GPU2"}, 2, "GPU4 GPU5"},
		{"dgx-a100", 8, []string{"GPU0", "GPU2", "GPU4", "GPU6"}, 2, "GPU1 GPU3"},
		{"dgx-a100", 8, nil, 8, "GPU0 GPU1 GPU2 GPU3 GPU4 GPU5 GPU6 GPU7"},
		{"dgx-h100", 8, nil, 4, "GPU0 GPU1 GPU2 GPU3"},
		{"dgx-h100", 8, []string{"GPU0"}, 4, "GPU4 GPU5 GPU6 GPU7"},
		{"dgx-h100", 8, []string{"GPU0", "GPU4"}, 3, "GPU1 GPU2 GPU3"},
		// Two devices behind one host bridge are better than two of one socket.
		{"pcie-4", 4, nil, 2, "GPU0 GPU1"},
		{"pcie-4", 4, []string{"GPU0"}, 2, "GPU2 GPU3"},
		{"pcie-4", 4, []string{"GPU0", "GPU3"}, 2, "GPU1 GPU2"},
		// A single device is chosen where it breaks no pair.
		{"pcie-4", 4, []string{"GPU2"}, 1, "GPU3"},
		// The links do not decide, but sets still stay on one socket.
		{"pcie-8", 8, []string{"GPU0", "GPU1", "GPU2"}, 2, "GPU4 GPU5"},
		{"pcie-8", 8, []string{"GPU1"}, 4, "GPU4 GPU5 GPU6 GPU7"},
		{"pcie-8", 8, []string{"GPU0", "GPU1", "GPU5"}, 3, "GPU4 GPU6 GPU7"},
	} {
		p, err := NewPool(recorded(t, c.machine, "NVIDIA A100-SXM4-80GB"))
		if err != nil {
			t.Fatal(err)
		}
		if n := len(p.Devices()); n != c.devices {
			t.Fatalf("%s: %d devices, want %v", c.machine, n, c.devices)
		}
		if len(c.taken) > 0 {
			if err := p.Hold("others", c.taken, Whole, 0); err != nil {
				t.Fatal(err)
			}
		}
		got, ok := p.Choose(gpus(c.n))
		if slices.Sort(got); !ok || strings.Join(got, " ") != c.want {
			t.Errorf("%s, %d wanted, %v taken: %v, want %s", c.machine, c.n, c.taken, got, c.want)
		}
	}
}
