package main

// Wrong command lines as newcomers write them. Each error names the wrong word, and what to write instead.

import (
	"os"
	"strings"
	"testing"
)

// wrongLines are command lines in a directory with the files of TestErrorsOfNewcomersSayWhatToWrite, and what their
// error says.
var wrongLines = []struct{ line, says string }{
	{"submit nosuch.sh", "submit: nosuch.sh: no such file or directory; a command that only the node has goes after --"},
	{"submit ./nosuch --lr 1", "submit: ./nosuch: no such file or directory"},
	{"run nosuch.py a", "run: nosuch.py: no such file or directory"},
	{"submit train.py", "train.py does not begin with #!, so it is no script; to send it: muster submit --upload train.py -- python3 train.py"},
	{"run train.py --lr 0.1", "to send it: muster run --upload train.py -- python3 train.py --lr 0.1"},
	{"submit plain.sh", "to send it: muster submit --upload plain.sh -- bash plain.sh"},
	{"submit .", "submit: . is a directory, neither a script nor a command"},
	{"run HERE/", "HERE/ is a directory, neither a script nor a command"},
	{"submit HERE/data.py 7", "HERE/data.py does not begin with #! and is not executable; if nodes have it: muster submit -- python3 HERE/data.py 7\n"},
	{"submit HERE/data", "HERE/data does not begin with #! and is not executable\n"},
	{"submit ./model a", "to send it: muster submit --upload ./model -- ./model a"},
	{"submit model", "to send it: muster submit --upload model -- ./model"},
	{"sbatch train.sh", "no such verb: \"sbatch\"; use `muster submit`"},
	{"submit --gres gpu:1 -- x", "--gres; use --gpus; "},
	{"submit --partition gpu -- x", "--partition; use --constraint; "},
	{"salloc -G 1", "\"salloc\"; use `muster alloc`"},
	{"seff last", "\"seff\"; use `muster show` or `muster usage`"},
	{"sshare", "\"sshare\"; use `muster users`"},
	{"scontrol hold 7", "\"scontrol\"; use `muster show` or `muster node show` or `muster hold` or `muster release` or `muster requeue`"},
	{"submit -n 4 -- x", "-n; use --ntasks-per-node for processes on one node, --nodes for several nodes; "},
	{"submit --mail-type=END -- x", "--mail-type; leave it out: no mail is sent; muster wait ID ends with the job; "},
	{"submit --wrap hostname", "--wrap; write muster submit -- sh -c 'COMMAND'; "},
	{"submit --parsable -- x", "--parsable; leave it out: submit prints only the id; "},
	{"submit --account vision -- x", "--account; use --project; "},
	{"submit --qos high -- x", "--qos; use --priority; "},
	{"submit --licenses matlab:1 -- x", "--licenses; use --constraint; "},
	{"submit --test-only -- x", "--test-only; use --dry-run; "},
	{"submit --input data -- x", "--input; write muster run -- COMMAND < FILE; "},
	{"submit --exclusive=user -- x", "--exclusive: it takes no value, such as \"user\"; see `muster submit --help`"},
	{"run --pty bash", "--pty; use -it; "},
	{"run --jobid 7 hostname", "--jobid; use --in; "},
	{"jobs -j 7", "-j; write muster show ID; "},
	{"jobs -l", "-l; use --wide; "},
	{"jobs -i 5", "-i; use --watch; "},
	{"jobs --account vision", "--account; use muster usage --project; "},
	{"cancel -u ada", "-u; write muster cancel all, which means your own jobs; "},
	{"cancel -n train", "-n; write muster cancel NAME; "},
	{"submit --mem 8 -- x", "--mem: size \"8\": a number needs a unit: 8MiB, which it is in Slurm, or 8GiB; sizes are written such as 8GiB or 500MB\n"},
	{"submit --mem 4000 -- x", "--mem: size \"4000\": a number needs a unit: 4000MiB, which it is in Slurm, or "},
	{"submit --gpu-mem 80 -- x", "--gpu-mem: size \"80\": a number needs a unit, such as 80GiB or 80MB\n"},
	{"submit -t 30 -- x", "--time: duration \"30\": a number needs a unit, such as 30s, 30m or 30h"},
	{"submit -t 1-12:30:00 -- x", "--time: duration \"1-12:30:00\": want a number and a unit, such as 90m, 1h30m or 2d; in Slurm this is 1d12h30m\n"},
	{"submit -t 02:00:00 -- x", "; in Slurm this is 2h\n"},
	{"submit -t -5 -- x", "want a number and a unit, such as 90m, 1h30m or 2d\n"},
	{"submit -G two -- x", "--gpus: \"two\": want N or MODEL:N"},
	{"submit -c 1.5 -- x", "--cpus: \"1.5\": want a whole number"},
	{"submit -F job.yaml -- x", "give a job file or a command, not both"},
	{"submit -F words.yaml", "words.yaml:2: command: want a list of words, such as [python, train.py]; a line for a shell goes in `script: python train.py`"},
	{"submit -F type.yaml", "type.yaml:2: resources.cpus: want a number, not text"},
	{"submit -F retries.yaml", "retries.yaml:2: retries: want a number, not a list"},
	{"submit -F unit.yaml", "unit.yaml:2: time_limit: duration \"3\": a number needs a unit"},
	{"submit -F field.yaml", "field.yaml:2: unknown field \"comand\"; did you mean command?"},
	{"submit --array 5-1 -- x", "array \"5-1\""},
	{"submit -o out.txt -- x", "output: \"out.txt\": a relative path needs a workdir"},
	{"run --rm --image busybox -- x", "--rm; containers are always removed when they end; "},
	{"run -p 8080:80 --image busybox -- x", "-p; a partition of Slurm is --constraint; no ports are published"},
	{"run -u me --image busybox -- x", "-u; a container runs as the user who submits"},
	{"submit --shm-size 8g --image busybox -- x", "--shm-size; /dev/shm is half of --mem, or of the node's memory"},
	{"run -d --image busybox -- x", "--dependency: \"--image\": want a condition such as afterok:ID; Docker's -d is `muster submit` without -d"},
	{"submit -d busybox x", "--dependency: \"busybox\": want a condition such as afterok:ID; Docker's -d is"},
	{"run --image busybox -d -- x", "flag -d needs a value; Docker's -d is `muster submit` without -d; see `muster run --help`"},
	{"run --image busybox -t -- x", "flag -t needs a value; Docker's -t is `muster run -it`; see"},
	{"run -t --image busybox -- x", "--time: duration \"--image\": want a number and a unit, such as 90m, 1h30m or 2d; Docker's -t is `muster run -it`"},
	{"run --image busybox -e A=B -- x", "--error: \"A=B\": want a file for stderr; Docker's -e K=V is --env K=V"},
	{"submit -D /w -e LR=0.1 -- x", "--error: \"LR=0.1\": want a file for stderr; Docker's -e K=V is --env K=V"},
	{"run -w /data --image busybox -- x", "--nodelist: \"/data\" is no list of nodes; Docker's -w DIR is -D DIR, or --workdir"},
	{"run --gpus all -- x", "--gpus: \"all\": want N or MODEL:N; Docker's --gpus all is the number of GPUs, or --exclusive for all of a node"},
	{"run --mount type=bind,source=/a,target=/b --image busybox -- x", "want SRC:DST or SRC:DST:ro; Docker's type=bind,source=SRC,target=DST is SRC:DST"},
	{"run -i --image busybox -- x", "-i; `muster run` passes its input on; a terminal is `muster run -it`; "},
	{"run --hostname a --image busybox -- x", "--hostname; the host name of a container is the name of its task; "},
	{"submit --device /dev/fuse --image busybox -- x", "--device; GPUs come with --gpus; a container gets no other devices; "},
	{"run --pull always --image busybox -- x", "--pull; an image is pulled where the node does not have it; "},
	{"run -l a=b --image busybox -- x", "-l; to find a job again, use --name or --project; "},
	{"run --image busybox -D rel -- x", "run: workdir \"rel\": with an image it is a directory of the image: want an absolute path"},
	{"run --image busybox --mount /data:/proc -- x", "the target cannot be in /proc"},
	{"exec -e A=b job -- x", "-e; write `muster exec ID -- env K=V COMMAND`"},
	{"ps --filter name=x", "--filter; use --state, --name, --user or --since"},
	{"inspect -f {{.State}} x", "-f; use --json"},
	{"logs --timestamps x", "--timestamps; the times of lines are not kept"},
	{"stop -t 5 x", "-t; the time between TERM and KILL is --grace of the job"},
	{"pull busybox", "no such verb: \"pull\"; the Docker engine of a node pulls the image"},
	{"stats", "`muster top` and `muster usage` show what tasks use"},
	{"logs", "logs: want one job id"},
	{"node", "node: want show or drain or resume or declare-dead or forget-claim; see `muster node --help`"},
	{"nodes drain n1", "nodes: want no argument"},
	{"jobs --states R", "no such flag: --states; use --state; "},
}

func TestErrorsOfNewcomersSayWhatToWrite(t *testing.T) {
	f := newFake(t, nil)
	here := t.TempDir()
	t.Chdir(here)
	for _, name := range []string{"data.py", "data"} { // not executable
		if err := os.WriteFile(name, []byte("x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"train.py": "print(1)\n", "plain.sh": "echo\n", "model": "\x7fELF", "train.sh": "#!/bin/sh\n",
		"job.yaml":     "command: [x]\n",
		"words.yaml":   "name: x\ncommand: python train.py\n",
		"type.yaml":    "command: [x]\nresources: {cpus: lots}\n",
		"retries.yaml": "command: [x]\nretries: [1]\n",
		"unit.yaml":    "command: [x]\ntime_limit: 3\n",
		"field.yaml":   "name: x\ncomand: [x]\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o700); err != nil { //nolint:gosec // one is a program
			t.Fatal(err)
		}
	}
	for _, c := range wrongLines {
		c.line, c.says = strings.ReplaceAll(c.line, "HERE", here), strings.ReplaceAll(c.says, "HERE", here)
		r := f.muster(strings.Fields(c.line)...)
		if r.code != exitUsage || r.stdout != "" || strings.Count(r.err, "\n") != 1 || !strings.Contains(r.err, c.says) {
			t.Errorf("muster %s: exit %d, %q; want %q", c.line, r.code, r.err, c.says)
		}
		checkError(t, c.line, r.err)
	}
}
