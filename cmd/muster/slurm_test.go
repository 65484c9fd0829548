package main

// Scripts as Slurm users write them, in testdata/slurm.

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
)

// slurmScript is the expected result of a script.
type slurmScript struct {
	args     string        // further arguments of submit
	after    string        // arguments of the script
	spec     string        // the fields that differ from those of a job without options, as JSON
	warnings []string      // a part of each warning, in order
	begin    time.Duration // from now
	refused  string        // a part of the error instead
}

var srunWarning = []string{":6: warning: srun is a program of Slurm, which nodes may not have; write its command without srun, or"}

var slurmScripts = map[string]slurmScript{
	"serial.sh": {
		spec: `{"name":"serial","time_limit":"1h30m","resources":{"cpus":1,"memory":"4GiB"}}`,
		warnings: []string{
			"serial.sh:6: warning: #SBATCH --partition=short: has no meaning here and is ignored; use a --constraint",
			"serial.sh:7: warning: #SBATCH --mail-type: no mail is sent; all options about mail are ignored",
		},
	},
	"array.sh": {spec: `{"name":"sweep","array":"0-99%8","time_limit":"30m","workdir":"/data/sweep",
		"output":"logs/%x_%A_%a.out","error":"logs/%x_%A_%a.err","resources":{"cpus":2,"memory":"4GiB"}}`},
	"array.sh more CPUs": {args: "-c 8 -o /logs/%t", spec: `{"name":"sweep","array":"0-99%8","time_limit":"30m","workdir":"/data/sweep",
		"output":"/logs/%t","error":"logs/%x_%A_%a.err","resources":{"cpus":8,"memory":"16GiB"}}`},
	"array.sh other memory": {args: "--mem 1GiB --array 5", spec: `{"name":"sweep","array":"5","time_limit":"30m","workdir":"/data/sweep",
		"output":"logs/%x_%A_%a.out","error":"logs/%x_%A_%a.err","resources":{"cpus":2,"memory":"1GiB"}}`},
	"array_steps.sh": {spec: `{"array":"1,3,7,10-30:10","nodes":1,"output":"/scratch/%u/slurm-%A_%a.out"}`},
	"gpu_gres.sh": {
		spec:     `{"time_limit":"60h","project":"vision","resources":{"cpus":16,"memory":"62.5GiB","gpus":2,"gpu_model":"a100"}}`,
		warnings: []string{"-p gpu: has no meaning", "--qos=high: has no meaning here and is ignored; use --priority", "gpu_gres.sh:9: warning: srun is a program of Slurm"},
	},
	"gpu_each.sh": {spec: `{"resources":{"cpus":24,"memory":"160GiB","gpus":4}}`},
	"gpu_task.sh": {
		spec:     `{"nodes":1,"resources":{"cpus":1,"gpus":1,"gpu_model":"H100"}}`,
		warnings: []string{"--gpu-bind=closest", "--hint=nomultithread"},
	},
	"gres_plain.sh":          {spec: `{"time_limit":"102h","resources":{"cpus":1,"gpus":1}}`},
	"gres_other.sh":          {refused: `gres_other.sh:3: --gres: "shard:2": only gpu is supported`},
	"gang.sh":                {warnings: srunWarning, refused: "#SBATCH --nodes 4: Slurm runs the script on the first node only, muster on each, where MUSTER_NODE_RANK tells it apart; if the script is made for that, add --nodes 4 to the command or `#MUSTER --nodes=4` to the script"},
	"gang.sh on each":        {warnings: srunWarning, args: "--nodes 4", spec: `{"name":"ddp","nodes":4,"ntasks_per_node":8,"resources":{"cpus":8,"gpus":8}}`},
	"gang.sh on one node":    {warnings: srunWarning, args: "-N 1", spec: `{"name":"ddp","nodes":1,"ntasks_per_node":8,"resources":{"cpus":8,"gpus":8}}`},
	"gang.sh of other tasks": {warnings: srunWarning, args: "--ntasks-per-node 2 -c 3 -N2 -G 6", spec: `{"name":"ddp","nodes":2,"ntasks_per_node":2,"resources":{"cpus":3,"gpus":3}}`},
	"gang_mpi.sh":            {refused: "#SBATCH --nodes 2"},
	"gang_mpi.sh on each": {
		args: "-N2", spec: `{"nodes":2,"ntasks_per_node":8,"resources":{"cpus":16,"memory":"16GiB"},"workdir":"/data/ada","output":"run-%j-%t.out","keep_on_bad_exit":true}`,
	},
	"gang_mpi.sh alone": {args: "-N1", spec: `{"nodes":1,"ntasks_per_node":16,"resources":{"cpus":32,"memory":"32GiB"},"workdir":"/data/ada","output":"run-%j-0.out","keep_on_bad_exit":true}`},
	"gang_gpus.sh":      {warnings: srunWarning, refused: "#SBATCH --nodes 2"},
	"gang_gpus.sh on each": {
		warnings: srunWarning,
		args:     "-N2", spec: `{"nodes":2,"ntasks_per_node":8,"resources":{"cpus":96,"memory":"800GiB","gpus":8,"gpu_model":"h100"}}`,
	},
	"gang_gpus.sh of fewer": {warnings: srunWarning, args: "-N2 --gpus-per-node 4", spec: `{"nodes":2,"ntasks_per_node":8,"resources":{"cpus":48,"memory":"400GiB","gpus":4}}`},
	"gang_array.sh":         {refused: "#SBATCH --nodes 2", warnings: []string{"2-4"}},
	"gang_array.sh on each": {
		args: "-N 2", spec: `{"array":"0-7%2","nodes":2,"resources":{"cpus":1,"gpus":4}}`,
		warnings: []string{"gang_array.sh:3: warning: #SBATCH --nodes: 2-4: the job gets 2 nodes, not more"},
	},
	"gang_uneven.sh":              {args: "--nodes 3", refused: "--gpus 8 is for the whole job and must be a multiple of --nodes 3; --gpus-per-node is for each node"},
	"gang_uneven.sh 4":            {args: "-N 4", spec: `{"nodes":4,"resources":{"cpus":1,"gpus":2}}`},
	"gang_ntasks.sh":              {refused: "--ntasks 8 is not a multiple of --nodes 3"},
	"gang_contrary.sh":            {refused: "ask for 8 and for 4 GPUs on each node; with --gpus for the whole job say --nodes too"},
	"gang_contrary.sh with nodes": {args: "--nodes 2", spec: `{"nodes":2,"resources":{"cpus":1,"gpus":4}}`},
	"gang_backwards.sh":           {refused: `gang_backwards.sh:2: -N: "4-2": the range ends before it begins`},
	"mpi.sh": {
		spec:     `{"ntasks_per_node":64,"time_limit":"1h","resources":{"cpus":64}}`,
		warnings: []string{"#SBATCH --ntasks: without --nodes all 64 tasks are on one node"},
	},
	"dependency.sh":  {spec: `{"time_limit":"5m","dependency":["afterok:` + idA + `"]}`},
	"begin.sh":       {spec: `{}`, begin: time.Hour},
	"exclusive.sh":   {spec: `{"exclusive":true}`},
	"input.sh":       {refused: "input.sh:2: --input: not yet"},
	"signal.sh":      {spec: `{"time_limit":"12h","signal":"USR1@300s"}`, warnings: []string{"signal.sh:5: warning: #SBATCH --open-mode=append"}},
	"signal_late.sh": {refused: "must be shorter than the time limit of 1m"},
	"relative.sh":    {spec: `{"name":"rel","requeue":false,"output":"logs/%x-%j.out","error":"logs/%x-%j.err"}`},
	"relative.sh in its files": {
		args: "--download x", spec: `{"name":"rel","requeue":false,"download":["x"],"submit_dir":""}`,
		warnings: []string{"#SBATCH --output and --error: with --upload or --download a relative path needs --chdir; it is ignored, and `muster logs` prints the output"},
	},
	"relative.sh without variables": {args: "--no-slurm-env", spec: `{"name":"rel","requeue":false,"output":"logs/%x-%j.out","error":"logs/%x-%j.err","slurm_env":false}`},
	"hold.sh with the usual file":   {args: "--slurm-output", spec: `{"hold":true,"time_limit":"1h30m30s","output":"slurm-%j.out"}`},
	"hold.sh as an array":           {args: "--slurm-output -a 1,2", spec: `{"hold":true,"time_limit":"1h30m30s","array":"1,2","output":"slurm-%A_%a.out"}`},
	"hold.sh with arguments":        {after: "a --hold", spec: `{"hold":true,"time_limit":"1h30m30s","args":["a","--hold"]}`},
	"relative.sh with a directory":  {args: "-D /w", spec: `{"name":"rel","requeue":false,"workdir":"/w","output":"logs/%x-%j.out","error":"logs/%x-%j.err"}`},
	"relative.sh as an array":       {args: "-D /w -a 0-3", spec: `{"name":"rel","requeue":false,"array":"0-3","workdir":"/w","output":"logs/%x-%A_%a.out","error":"logs/%x-%A_%a.err"}`},
	"patterns.sh":                   {spec: `{"array":"1-20","workdir":"/data/ada","output":"%N/%A_%a_%4a.0.batch.log"}`},
	"pattern_bad.sh":                {refused: `pattern_bad.sh:3: -o: "/logs/%b.out": %b: not yet`},
	"environment.sh": {
		spec: `{"env":{"MODEL":"small"},"constraint":"rack=r1","nodelist":["n1","n2"],"exclude":["n3"]}`,
		warnings: []string{
			"--export: ALL: variables are not handed on; name them with --env", "--nice=100: has no meaning here and is ignored; use --priority",
			"--comment=weekly run", "--mem: 0 does not mean all memory of the node here",
		},
	},
	"misspelt.sh": {spec: `{}`, warnings: []string{
		"misspelt.sh:2: warning: #SBATCH --timee=10:00: has no meaning here and is ignored; did you mean --time?",
		"misspelt.sh:3: warning: #SBATCH --cpu-per-task=4: has no meaning here and is ignored; did you mean --cpus-per-task?",
		"misspelt.sh:4: warning: #SBATCH --profile=all: has no meaning here and is ignored\n",
		"misspelt.sh:5: warning: squeue is a program of Slurm, which nodes may not have; use muster jobs\n",
		"misspelt.sh:5: warning: srun is a program of Slurm, which nodes may not have; write its command without srun, or start several processes with mpirun or torchrun\n",
	}},
	"hold.sh":     {spec: `{"hold":true,"time_limit":"1h30m30s"}`},
	"deadline.sh": {refused: "deadline.sh:2: --deadline: of sbatch, not of muster; use --time"},
	"hints.sh":    {spec: `{}`, warnings: []string{"--reservation=course: has no meaning here and is ignored; use --nodelist", "--profile", "--gpu-bind"}},
	"licence.sh":  {refused: "licence.sh:3: -L: of sbatch, not of muster; use a --constraint with labels of the nodes"},
	"wait.sh":     {refused: "wait.sh:2: --wait: of sbatch, not of muster; use muster submit -W"},
	"variables.sh": {spec: `{"output":"out-%j.txt"}`, warnings: []string{
		"variables.sh:4: warning: SLURM_JOB_NODELIST is not set here; use MUSTER_NODE_IPS", "variables.sh:5: warning: SLURM_CLUSTER_NAME is not set here; use the variables named MUSTER_",
	}},
	"comments.sh": {spec: `{"name":"resnet50 train","time_limit":"24h","output":"logs/%x-%j.out","resources":{"cpus":8,"memory":"32GiB","gpus":2,"gpu_model":"h100"}}`, warnings: []string{
		"comments.sh:3: warning: #SBATCH --partition=gpu: has no meaning", "comments.sh:9: warning: #SBATCH --mail-type: no mail is sent", "comments.sh:14: warning: srun is a program of Slurm",
	}},
	"gres_equals.sh":       {spec: `{"time_limit":"90m","resources":{"cpus":1,"gpus":2}}`},
	"gres_model.sh":        {spec: `{"resources":{"cpus":1,"gpus":1,"gpu_model":"h100"}}`},
	"gres_model_equals.sh": {spec: `{"resources":{"cpus":1,"gpus":2,"gpu_model":"h100"}}`},
	"gres_models.sh":       {refused: `gres_models.sh:2: --gres: "gpu:a100:1,gpu:h100:1": GPUs of one model only; write gpu:MODEL:N once`},
	"gres_none.sh":         {spec: `{}`},
	"gres_tres.sh":         {spec: `{"resources":{"cpus":1,"gpus":1,"gpu_model":"h100"}}`},
	"gres_two.sh":          {refused: `gres_two.sh:2: --gres: "tmpspace:10G": only gpu is supported`},
	"features.sh":          {spec: `{"constraint":"skylake|cascade"}`},
	"features_comma.sh":    {refused: `features_comma.sh:2: constraint "intel,ib": at character 6: unexpected ','; write & for and, | for or`},
	"mem_units.sh":         {spec: `{"time_limit":"12h","resources":{"cpus":1,"memory":"4000MiB"}}`},
	"array_memory.sh":      {spec: `{"array":"1-1000:7%20","error":"logs/err_%A-%a.txt","resources":{"cpus":1,"memory":"2GiB"}}`},
	"short_forms.sh": {spec: `{"name":"test","time_limit":"10m","nodes":1,"ntasks_per_node":4,"resources":{"cpus":16,"memory":"8GiB"}}`, warnings: []string{
		"short_forms.sh:2: warning: #SBATCH --mail-type: no mail is sent", "short_forms.sh:4: warning: #SBATCH -p short: has no meaning",
	}},
	"old_habits.sh": {spec: `{"project":"phys_2024","nodes":1,"requeue":false,"resources":{"cpus":4,"gpus":1,"gpu_model":"a100_80gb"}}`, warnings: []string{
		"--qos=normal", "--get-user-env", "--export: ALL: variables are not handed on", "--parsable", "--verbose", "-v", "--open-mode=truncate",
		"old_habits.sh:17: warning: SLURM_JOB_NODELIST is not set here", "old_habits.sh:17: warning: SLURMD_NODENAME is not set here; use MUSTER_NODE_IPS or hostname",
	}},
	"time_seconds.sh": {spec: `{"time_limit":"90s"}`},
	"time_hours.sh":   {refused: `time_hours.sh:2: --time: "12h": want minutes, H:M:S or D-H:M:S`},
	"singleton.sh":    {refused: `singleton.sh:2: dependency "singleton": singleton is not supported`},
	"time_bad.sh":     {refused: `time_bad.sh:3: --time: "one-hour": want minutes, H:M:S or D-H:M:S`},
}

func TestSlurmScriptsBecomeJobs(t *testing.T) {
	files, err := filepath.Glob("testdata/slurm/*.sh")
	if err != nil || len(files) < 20 {
		t.Fatalf("got %d scripts, %v, want at least 20", len(files), err)
	}
	for _, path := range files {
		if _, told := slurmScripts[filepath.Base(path)]; !told {
			t.Errorf("the table has no row for %s", path)
		}
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	in := newIntake(t)
	for name, want := range slurmScripts {
		file, _, _ := strings.Cut(name, " ")
		path := filepath.Join("testdata/slurm", file)
		args := slices.Concat([]string{"submit"}, strings.Fields(want.args), []string{path}, strings.Fields(want.after))
		r := in.muster(args...)
		if want.refused != "" {
			if lines := strings.Split(strings.TrimSuffix(r.err, "\n"), "\n"); r.code != 2 || !strings.Contains(lines[len(lines)-1], want.refused) || len(lines) != 1+len(want.warnings) {
				t.Errorf("%s: exit %d, %q; want 2 with %q", name, r.code, r.err, want.refused)
			}
			continue
		}
		if r.code != 0 {
			t.Errorf("%s: exit %d, %q, want exit 0", name, r.code, r.err)
			continue
		}
		checkWarnings(t, name, r.err, want.warnings)
		spec := in.specs[len(in.specs)-1]
		text, err := os.ReadFile(path)
		if err != nil || spec.Script != string(text) {
			t.Errorf("%s: got the script %q, %v, want its text", name, spec.Script, err)
		}
		if want.begin > 0 && spec.Begin != nil && time.Until(*spec.Begin).Round(time.Minute) == want.begin {
			spec.Begin = nil
		}
		becomes := job.DefaultSpec()
		becomes.Name, becomes.Script, becomes.SlurmEnv, becomes.SubmitDir = defaultName(file), spec.Script, true, here
		if err := json.Unmarshal([]byte(want.spec), &becomes); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if becomes.Workdir != "" {
			becomes.SubmitDir = ""
		}
		if !reflect.DeepEqual(spec, becomes) {
			t.Errorf("%s: got\n%+v, want\n%+v", name, spec, becomes)
		}
	}
}

func checkWarnings(t *testing.T, name, text string, want []string) {
	t.Helper()
	lines := slices.Collect(strings.Lines(text))
	if len(lines) != len(want) {
		t.Errorf("%s: got warnings %q, want %q", name, lines, want)
		return
	}
	for i, w := range want {
		if !strings.Contains(lines[i], w) || !strings.Contains(lines[i], "warning: ") {
			t.Errorf("%s: got warning %q, want %q", name, lines[i], w)
		}
	}
}

// A value that depends on several options is refused if it cannot be computed.
func TestSlurmProductsThatOverflowAreRefused(t *testing.T) {
	for _, l := range []slurmLate{
		{memPerCPU: 1 << 60},
		{memPerGPU: 1 << 62},
		{cpusPerGPU: job.MaxCPUs + 1},
		{cpusPerGPU: -1},
	} {
		r := job.Resources{CPUs: 100, GPUs: 8}
		if err := l.resources(func(string) bool { return false }, &r, 1); err == nil {
			t.Errorf("%+v: got %+v, want an error", l, r)
		}
	}
}
