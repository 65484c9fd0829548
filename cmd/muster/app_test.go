package main

// Command lines: the verb that each runs, and the error that an invalid one gives.

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/internal/testkit/needtest"
	"github.com/musterhq/muster/job"
)

func TestInvalidCommandLinesAreRefused(t *testing.T) {
	clearEnvironment(t)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		line string // {NAME} is replaced by the path of a file
		code int
		want string
	}{
		{"sumbit -- true", 2, `no such verb: "sumbit"`},
		{"node bogus", 2, `no such verb: "node bogus"`},
		{"--bogus", 2, "no such flag: --bogus; `muster --help`"},
		{"nodes -x", 2, "no such flag: -x; `muster nodes --help`"},
		{"submit --frobnicate -- true", 2, "no such flag: --frobnicate"},
		{"submit -frob true", 2, "no such flag: -frob"},
		{"sbatch x", 2, "use `muster submit`"},
		{"submit --gres=gpu:2 true", 2, "no such flag: --gres; use --gpus; `muster submit --help` lists them"},
		{"nodes --gres=gpu:2", 2, "no such flag: --gres; `muster nodes --help` lists them"},
		{"submit {dos.sh}", 2, "lines end with CR LF"},
		{"jobs --state", 2, "flag --state needs a value"},
		{"submit --name -- true", 2, "flag --name needs a value"},
		{"cancel x --reason", 2, "flag --reason needs a value"},
		{"jobs extra", 2, "jobs: want no argument"},
		{"show", 2, "show: want one job id"},
		{"cancel", 2, "cancel: want a job id, last or all"},
		{"jobs --state XX", 2, `state "XX"`},
		{"logs last -n x", 2, `-n: invalid value "x"`},
		{"logs last -n=-3", 2, "--lines -3: must be at least 0"},
		{"logs --all -n 3 last", 2, "goes neither with --lines"},
		{"wait last --timeout 5", 2, "needs a unit"},
		{"invite --ttl 0s", 2, "longer than 0s"},
		{"invite --uses 0", 2, "at least 1"},
		{"join /ip4/1.2.3.4/tcp/1", 2, "--token"},
		{"peers --reason x", 2, "--revoke"},
		{"peers --with-invited", 2, "--revoke"},
		{"peers --revoke a --restore b", 2, "--restore"},
		{"dev --nodes 0", 2, "want 1 to"},
		{"dev --docker-mount data", 2, "dev: docker-mount: \"data\": want an absolute path"},
		{"dev --docker-host=", 2, "dev: docker-host: \"\": want an address such as"},
		{"dev --docker-host nowhere", 2, "dev: docker-host: \"nowhere\": want an address such as"},
		{"daemon --gate", 2, "not yet in this version"},
		{"completion tcsh", 2, "bash, zsh or fish"},
		{"submit", 2, "needs a command or a script"},
		{"submit ", 2, "program's name is empty"},
		{"submit --mem 64 true", 2, "needs a unit"},
		{"submit -t 90 true", 2, "needs a unit"},
		{"submit -c 99999999999999999999 true", 2, "out of range"},
		{"submit -c x true", 2, "want a whole number"},
		{"submit -G H100 true", 2, "MODEL:N"},
		{"submit -J a\x1bb true", 2, "printable"},
		{"submit a\xffb", 2, "not UTF-8"},
		{"submit -G :2 true", 2, "MODEL:N"},
		{"submit --image= true", 2, "--image: the image's name is empty"},
		{"submit --upload-limit 5 true", 2, "--upload-limit: size \"5\": a number needs a unit"},
		{"submit --policy best true", 2, "policy \"best\": want one of balanced, frag, pack, simple, spread, topology"},
		{"submit --policy a\x1bb true", 2, "policy \"a\\x1bb\": not a name"},
		{"submit -G H100|:2 true", 2, "a name is empty; several models are written A100|H100"},
		{"submit -t 9999999d true", 2, "at most 36500d"},
		{"submit --retry-on 75 true", 2, "retry_on: it needs retries, the number of further runs (--retries N)"},
		{"submit --retries 1 --retry-on 75,x true", 2, "--retry-on: \"75,x\": want exit codes such as 75,137"},
		{"submit --retries 1 --retry-on 75,, true", 2, "--retry-on: \"75,,\": want exit codes such as 75,137"},
		{"submit --retries 1 --retry-on= true", 2, "--retry-on: \"\": want exit codes such as 75,137"},
		{"submit --retries 1 --retry-on 0 true", 2, "retry_on 0: want exit codes from 1 to 255"},
		{"submit --max-failures 0 true", 2, "--max-failures: 0: want 1 or more"},
		{"submit --checkpoint-exit-code 0 true", 2, "--checkpoint-exit-code: 0 is the exit code of a success"},
		{"submit --checkpoint-exit-code 300 true", 2, "checkpoint_exit_code 300: want 1 to 255"},
		{"submit --param x true", 2, "want K=V"},
		{"submit --env NOT_SET_HERE true", 2, "not set here"},
		{"submit --env-file /nowhere true", 2, "/nowhere: no such file"},
		{"submit -F /nowhere", 2, "/nowhere: no such file"},
		{"submit -F {good.yaml} true", 2, "not both"},
		{"submit -F - true", 2, "not both"},
		{"submit -F {bad.yaml}", 2, "bad.yaml:2"},
		{"submit -F {big.yaml}", 2, "larger than 1MiB"},
		{"submit {zero.sh}", 2, "not a text"},
		{"submit {latin1.sh}", 2, "not UTF-8"},
		{"submit {big.sh}", 2, "larger than 512KiB"},
		{"submit -", 2, "it is empty"},
		{"submit -a 9-0 true", 2, "array \"9-0\""},
		{"submit --nodes 0 true", 2, "--nodes: \"0\": want a number of nodes above 0"},
		{"submit -N 513 true", 2, "nodes 513: want 1 to 512"},
		{"submit -N 100 -a 0-99999 true", 2, "nodes: 100000 elements of 100 tasks; at most 1000000 tasks"},
		{"submit -N 4 --gpus 6 true", 2, "submit: --gpus 6 is for the whole job and must be a multiple of --nodes 4; --gpus-per-node is for each node"},
		{"submit -N 4 --gpus 8 --gpus-per-node 2 true", 2, "--gpus-per-node: give it or --gpus, not both"},
		{"submit -N 4 --ntasks-per-node 0 true", 2, "--ntasks-per-node: \"0\": want a number of processes above 0"},
		{"submit -N 4 --kill-on-bad-exit=never true", 2, "--kill-on-bad-exit: \"never\": want yes or no"},
		{"exec x.1.2.3 -- true", 2, "ranks of \"x.1.2.3\""},
		{"requeue", 2, "a job id, last or all"},
		{"logs x --attempt 0", 2, "--attempt 0: attempts are numbered from 1"},
		{"logs x --all --attempt 1", 2, "--attempt: name one task, such as ID.3"},
		{"exec x", 2, "want ID[.T] -- COMMAND"},
		{"exec x -- ", 2, "the program's name is empty"},
		{"exec --socket /nowhere/s x -- true", 125, "no daemon answers"},
		{"cp x:f ", 2, "the directory's name is empty"},
		{"node show ", 2, "node \"\": want its name or id"},
		{"node drain ..", 2, "node \"..\": want its name or id"},
		{"jobs --socket /" + strings.Repeat("s", 107), 2, "at most 107 bytes"},
		{"top", 2, "the standard input and output must be a terminal; --once prints one frame anywhere"},
		{"top x", 2, "top: want no argument"},
		{"top --refresh 0", 2, "--refresh 0s: want 200ms to 1h"},
		{"top --refresh soon", 2, "--refresh:"},
		{"top --refresh 1d", 2, "want 200ms to 1h"},
		{"top --once --socket /nowhere/s", 1, "no daemon answers on /nowhere/s: start one with `muster daemon`"},
		{"events --json -f", 2, "use --jsonl"},
		{"events --sort time -f", 2, "--follow never has them all"},
		{"events -o weather", 2, "no such column"},
		{"events x -f", 2, "--follow is for the events of the cluster"},
		{"events x y", 2, "at most one job id"},
		{"simulate", 2, "simulate: there is no cluster: give --machines, or --topology"},
		{"simulate --machines 4x8xH100-80GB,64cpu,512GiB", 2, "want one of --jobs, --synthetic and --sacct"},
		{"simulate --machines /nowhere.csv --synthetic load:1", 2, "/nowhere.csv: no such file"},
		{"simulate --machines 4x8xH100-80GB,64cpu,512GiB --synthetic jobs:x", 2, "--synthetic:1: jobs"},
		{"simulate --machines 4x8xH100-80GB,64cpu,512GiB --jobs {jobs.csv}", 2, "duration_s \"-5\""},
		{"simulate --machines 4x8xH100-80GB,64cpu,512GiB --jobs {wide.csv}", 2, "the cluster could never run it"},
		{"simulate --topology {net.yaml} --synthetic load:1", 2, "host b has no path to host a"},
		{"simulate --topology torus --synthetic load:1", 2, "--topology \"torus\": want leaf-spine, fat-tree, or a file"},
		{"simulate --machines 1x,8cpu,64GiB --synthetic jobs:1;rate:1/h;gpus:0 --fail 1%/y", 2, "--fail: rate \"1%/y\": no time unit"},
		{"simulate --machines 1x,8cpu,64GiB --synthetic jobs:1;rate:1/h;gpus:0 --yardsticks lifo", 2, "no order is called \"lifo\""},
		{"simulate --machines 1x,8cpu,64GiB --synthetic jobs:1;rate:1/h;gpus:0 --policy best", 2, "policy"},
		{"simulate --machines 1x,8cpu,64GiB --synthetic jobs:1;rate:1/h;gpus:0 --out /nowhere/x", 2, "--out: open /nowhere/x: no such file"},
		{"simulate --machines 1x,8cpu,64GiB --synthetic jobs:1;rate:1/h;gpus:0 --schedulers 2", 2, "--schedulers 2: there are 1 machines"},
		{"simulate --machines 1x,8cpu,64GiB --synthetic jobs:1;rate:1/h;gpus:0 --candidates -1", 2, "--candidates -1: want at least 1"},
		{"simulate --machines 1x,8cpu,64GiB --synthetic jobs:1;rate:1/h;gpus:0 --until -1h", 2, "--until -1h: a time cannot be negative"},
		{"simulate --compare a.json", 2, "want two files or more"},
		{"simulate --compare /nowhere.json /nowhere.json", 2, "no such file"},
		{"simulate a.json", 2, "files are arguments of --compare and --gates only"},
		{"node drain n1 --deadline 5", 2, "--deadline: "},
		{"node drain", 2, "the name or id of a node"},
		{"node resume", 2, "the name or id of a node"},
		{"node declare-dead", 2, "the name or id of a node"},
		{"node declare-dead a b", 2, "the name or id of a node"},
		{"node declare-dead ..", 2, "node \"..\": want its name or id"},
		{"node declare-dead n1 --force", 2, "no such flag: --force"},
		{"node forget-claim", 2, "want the whole id of a job, or its end after the dash"},
		{"node forget-claim k3v9", 2, "want the whole id of a job, or its end after the dash"},
		{"jobs --socket /nowhere/s", 1, "no daemon answers on /nowhere/s: start one with `muster daemon`"},
		{"--socket /nowhere/s jobs", 1, "/nowhere/s"},
		{"run --socket /nowhere/s true", 125, "/nowhere/s"},
		{"wait --socket /nowhere/s last", 125, "/nowhere/s"},
		{"--addr ::: jobs", 2, "HOST:PORT"},
		{"--addr localhost:1 --api-token /nowhere jobs", 2, "/nowhere: no such file"},
	} {
		for name, text := range map[string]string{
			"good.yaml": "command: [true]\n", "bad.yaml": "command: [a]\nfoo: 1\n", "big.yaml": strings.Repeat("#", 2<<20),
			"zero.sh": "#!/bin/sh\x00\n", "latin1.sh": "#!/bin/sh\necho \xe9\n", "dos.sh": "#!/bin/sh\r\necho\r\n", "big.sh": "#!/bin/sh\n" + strings.Repeat("#", 600<<10),
			"jobs.csv": jobCSVHead + "a,0,-5,1,1000,1000,0,,,\n", "wide.csv": jobCSVHead + "a,0,5,64,1000,1000,0,,,\n",
			"net.yaml": "nodes: [{name: a, kind: host}, {name: b, kind: host}]\nedges: []\n",
		} {
			if strings.Contains(c.line, "{"+name+"}") {
				c.line = strings.ReplaceAll(c.line, "{"+name+"}", file(name, text))
			}
		}
		r := program(t.Context(), "", strings.Split(c.line, " ")...)
		if r.code != c.code || !strings.Contains(r.err, c.want) || strings.Count(r.err, "\n") != 1 || r.stdout != "" {
			t.Errorf("muster %.80q: exit %d, stdout %q, stderr %q; want exit %d and one line with %q", c.line, r.code, r.stdout, r.err, c.code, c.want)
		}
		checkError(t, c.line, r.err)
	}
}

// jobCSVHead is the first line of a table of jobs.
const jobCSVHead = "job,submit_s,duration_s,num_gpu,gpu_milli,cpu_milli,memory_mib,gpu_spec,class,priority\n"

func TestFlagsArePutBeforeArguments(t *testing.T) {
	clearEnvironment(t)
	for _, c := range []struct{ line, want string }{
		{"show X --json", "show --json -- X"},
		{"node show X --json", "node show --json -- X"},
		{"show -- --json", "show -- --json"},
		{"logs ID -f -n 5", "logs -f -n=5 -- ID"},
		{"logs -fn5 ID", "logs -f -n=5 -- ID"},
		{"logs -fn 5 ID", "logs -f -n=5 -- ID"},
		{"logs --lines=5 ID", "logs --lines=5 -- ID"},
		{"--socket S jobs --all", "jobs --socket=S --all"},
		{"--socket S node show X", "node show --socket=S -- X"},
		{"--socket S version", "--socket=S version"},
		{"--addr=A jobs --addr B", "jobs --addr=A --addr=B"},
		{"show X --help", "show --help"},
		{"submit -c4 -J name prog -c 5 --json", "submit -c=4 -J=name -- prog -c 5 --json"},
		{"submit --hold -- prog --help", "submit --hold -- -- prog --help"},
		{"submit -- -- prog", "submit -- -- -- prog"},
		{"submit --hold=false prog", "submit --hold=false -- prog"},
		{"run -GH100:2 sh -c x", "run -G=H100:2 -- sh -c x"},
		{"cancel a - b", "cancel -- a - b"},
		{"runner -x --y z", "runner -x --y z"},
		{"", ""},
	} {
		got, err := arrange(newApp(streams{}), append([]string{"muster"}, strings.Fields(c.line)...))
		if line := strings.Join(got, " "); err != nil || line != strings.TrimSpace("muster "+c.want) {
			t.Errorf("arrange %q = %q, %v; want %q", c.line, line, err, c.want)
		}
	}
}

func TestHelpCoversEveryVerb(t *testing.T) {
	clearEnvironment(t)
	top := program(t.Context(), "", "--help")
	if top.code != 0 || top.err != "" {
		t.Fatalf("--help: exit %d, %s, want exit 0 and empty stderr", top.code, top.err)
	}
	for _, args := range [][]string{{}, {"help"}, {"-h"}} {
		if r := program(t.Context(), "", args...); r != top {
			t.Errorf("muster %q: want the output of muster --help, got exit %d, %s", args, r.code, r.err)
		}
	}
	var walk func(path []string, verbs []*cli.Command)
	walk = func(path []string, verbs []*cli.Command) {
		for _, v := range verbs {
			if v.Hidden || v.Name == "help" { // help of help is the help of all verbs
				continue
			}
			path := append(slices.Clone(path), v.Name)
			long := program(t.Context(), "", append(slices.Clone(path), "--help")...)
			if long.code != 0 || !strings.Contains(long.stdout, "muster "+strings.Join(path, " ")+" - "+v.Usage) || v.Usage == "" {
				t.Errorf("%q --help: exit %d, want 0 and a line of usage\n%s", path, long.code, long.stdout)
			}
			if short := program(t.Context(), "", append([]string{"help"}, path...)...); short != long {
				t.Errorf("help %q differs from %q --help, want short = %v", path, path, long)
			}
			if len(path) == 1 && !strings.Contains(top.stdout, v.Usage) {
				t.Errorf("--help does not list %q", path)
			}
			walk(path, v.Subcommands)
		}
	}
	walk(nil, newApp(streams{}).Commands)
	if r := program(t.Context(), "", "version"); r.code != 0 || r.stdout != "muster dev\n" {
		t.Errorf("version: exit %d, %q, want 0, muster dev", r.code, r.stdout)
	}
}

func allStates() string {
	var codes, words []string
	for _, s := range job.States() {
		codes, words = append(codes, s.Code()), append(words, string(s))
	}
	return strings.Join(append(codes, words...), " ")
}

func TestCompletionOfVerbsAndFlags(t *testing.T) {
	clearEnvironment(t)
	for _, c := range []struct{ line, want string }{
		{"su", "submit"},
		{"no", "nodes node"},
		{"--socket S no", "nodes node"},
		{"node ", "show drain resume declare-dead forget-claim"},
		{"node show --j", "--json"},
		{"jobs --st", "--state --start"},
		{"ps --al", "--all"},
		{"jobs --state ", allStates()},
		{"jobs --state = ", allStates()},
		{"jobs --state =", allStates()},
		{"jobs --state SUC", "SUCCEEDED"},
		{"jobs -t SUC", "SUCCEEDED"},
		{"jobs --state=SUC", "--state=SUCCEEDED"},
		{"jobs --state PD,SUC", "PD,SUCCEEDED"},
		{"submit --policy s", "simple spread"},
		{"submit --kill-on-bad-exit ", "yes no"},
		{"daemon --log-level ", "debug info warn error"},
		{"daemon --order ", "age attained remaining"},
		{"invite --roles worker,", "worker,worker worker,scheduler worker,inviter"},
		{"completion ", "bash zsh fish"},
		{"help node dr", "drain"},
		{"help sub", "submit"},
		{"jobs --state = R --al", "--all"},
		{"submit --gp", "--gpus --gpus-per-node --gpu-mem --gpu-share"},
		{"submit prog --gp", ""},
		{"submit -- --gp", ""},
		{"nope x", ""},
		{"requ", "requeue"},
		{"simul", "simulate"},
	} {
		r := program(t.Context(), "", append(strings.Split(c.line, " "), askCompletion)...)
		if got := strings.Join(strings.Fields(r.stdout), " "); r.code != 0 || got != c.want {
			t.Errorf("completion of %q = %q, want %q", c.line, got, c.want)
		}
	}
}

// TestBashCompletionPassesWords runs the script in bash with a fake program that prints its arguments.
func TestBashCompletionPassesWords(t *testing.T) {
	clearEnvironment(t)
	bash := needtest.Runs(t, "bash", "-c", "true")
	r := program(t.Context(), "", "completion", "bash")
	script := r.stdout + `muster() { printf '<%s>' "$@"; }
COMP_WORDS=(muster jobs --st more) COMP_CWORD=2
_muster
echo "${COMPREPLY[*]}"
complete -p muster`
	out, err := exec.CommandContext(t.Context(), bash, "-c", script).CombinedOutput()
	if want := "<jobs><--st><" + askCompletion + ">\ncomplete -o default -F _muster muster\n"; err != nil || string(out) != want {
		t.Errorf("bash: got %v, %q, want %q", err, out, want)
	}
}
