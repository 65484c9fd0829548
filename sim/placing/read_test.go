package placing

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/sim/load"
)

func traces(tb testing.TB) string {
	tb.Helper()
	dir := os.Getenv("MUSTER_TRACES")
	if dir == "" {
		tb.Skip("MUSTER_TRACES is not set: it names the directory with the public traces")
	}
	return filepath.Join(dir, "openb")
}

func readCSV(tb testing.TB, path ...string) [][]string {
	tb.Helper()
	f, err := os.Open(filepath.Join(path...))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		tb.Fatal(err)
	}
	return rows[1:]
}

func number(tb testing.TB, text string) int {
	tb.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

func machinesOf(tb testing.TB, dir string) []load.Machine {
	tb.Helper()
	var out []load.Machine
	for _, r := range readCSV(tb, dir, "openb_node_list_gpu_node.csv") {
		out = append(out, load.Machine{
			Name: r[0], CPUs: number(tb, r[1]), Memory: job.Size(number(tb, r[2])) << 20, GPUs: number(tb, r[3]), Model: r[4],
		})
	}
	return out
}

func tableOf(tb testing.TB, dir, file string) []load.Request {
	tb.Helper()
	var out []load.Request
	for _, r := range readCSV(tb, dir, file) {
		need := job.Resources{CPUs: number(tb, r[1]), Memory: job.Size(number(tb, r[2])) << 20}
		switch n, milli := number(tb, r[3]), number(tb, r[4]); {
		case n == 1 && milli < gpu.Whole:
			need.GPUShare = float64(milli) / gpu.Whole
		case n > 0:
			need.GPUs = n
		}
		x := load.Request{Name: r[0], Need: need, GPUs: gpu.Count(need), Milli: gpu.Milli(need)}
		if len(r) > 5 && x.GPUs > 0 {
			x.Models = r[5]
			x.Need.GPUModel = lease.ModelName(r[5])
		}
		out = append(out, x)
	}
	return out
}
