package load

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// refused checks that a reader refuses each text with an error of one line that has all of the words.
func refused(t *testing.T, read func(r io.Reader) error, header string, cases []struct{ rows, want string }) {
	t.Helper()
	for _, c := range cases {
		text := header + c.rows
		if strings.HasPrefix(c.rows, "=") { // the whole table
			text = c.rows[1:]
		}
		err := read(strings.NewReader(text))
		if err == nil {
			t.Errorf("%q was read, want an error with %q", c.rows, c.want)
			continue
		}
		if !strings.Contains(err.Error(), c.want) || strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("%q: error %q, want one line with %q", c.rows, err, c.want)
		}
	}
}

func TestInvalidMachinesAreRefused(t *testing.T) {
	read := func(r io.Reader) error {
		_, err := ReadMachines("m.csv", r)
		return err
	}
	refused(t, read, machineHeader, []struct{ rows, want string }{
		{"=", "m.csv: it is empty"},
		{"", "m.csv: only a header"},
		{"=sn,cpu_milli,memory_mib,gpu\na,1,1,0\n", `m.csv:1: the column "model" is missing; want sn,cpu_milli,memory_mib,gpu,model; may have rack`},
		{"=sn,cpu_milli,memory_mib,gpu,model,colour\na,1,1,0,,red\n", `m.csv:1: unknown column "colour"`},
		{"=sn,sn,cpu_milli,memory_mib,gpu,model\n", `m.csv:1: the column "sn" is there twice`},
		{"a,1,1,0\n", "m.csv:2: 4 fields, but the first line names 5 columns"},
		{"a,1,1,0,\na,1,1,0,\n", `m.csv:3: sn "a": a second machine of this name; the first is in line 2`},
		{",1,1,0,\n", `m.csv:2: sn "": a machine needs a name`},
		{"a,-1,1,0,\n", `m.csv:2: cpu_milli "-1": want 0 to`},
		{"a,1.5,1,0,\n", `m.csv:2: cpu_milli "1.5": want a whole number`},
		{"a,NaN,1,0,\n", `m.csv:2: cpu_milli "NaN": want a number`},
		{"a,0x10,1,0,\n", `m.csv:2: cpu_milli "0x10": want a number`},
		{"a,1e300,1,0,\n", `m.csv:2: cpu_milli "1e300": want a whole number`},
		{"a,1,-2,0,\n", `m.csv:2: memory_mib "-2": want 0 to`},
		{"a,1,Inf,0,\n", `m.csv:2: memory_mib "Inf": want a number`},
		{"a,1,,0,\n", `m.csv:2: memory_mib "": it is empty: want a number`},
		{"a,1,1,99,T4\n", `m.csv:2: gpu "99": want 0 to 64`},
		{"a,1,1,8,\n", `m.csv:2: model "": the machine has GPUs`},
		{"a,1,1,0,T4\n", `m.csv:2: model "T4": the machine has no GPUs`},
		{"a,1,1,1,T4|P4\n", `m.csv:2: model "T4|P4": the GPUs of a machine have one model`},
		{"\"a,1,1,0,\n", `m.csv:2: extraneous or missing " in quoted-field`},
		{"a\x00,1,1,0,\n", `m.csv:2: sn "a\x00": only printable characters`},
		{"a\xff,1,1,0,\n", `m.csv:2: sn "a\xff": only printable characters`},
		{strings.Repeat("a", 200) + ",1,1,0,\n", `m.csv:2: sn "` + strings.Repeat("a", 40) + `": 200 bytes; at most 128`},
		{"=sn,cpu_milli,memory_mib,gpu,model,labels\na,1,1,0,,zone\n", `m.csv:2: labels "zone": want NAME=VALUE`},
		{"=sn,cpu_milli,memory_mib,gpu,model,rack,labels\na,1,1,0,,r1,rack=r2\n", `m.csv:2: labels "rack=r2": the label "rack" is there twice`},
		{"=sn,cpu_milli,memory_mib,gpu,model,device_memory_mib\na,1,1,1,T4,0\n", `m.csv:2: device_memory_mib "0": a GPU without memory`},
	})
}

func TestInvalidRequestsAreRefused(t *testing.T) {
	read := func(r io.Reader) error {
		_, err := ReadRequests("p.csv", r)
		return err
	}
	refused(t, read, requestHeader, []struct{ rows, want string }{
		{"=name,cpu_milli,memory_mib,num_gpu\n", `p.csv:1: the column "gpu_milli" is missing`},
		{"=name,cpu_milli,memory_mib,num_gpu,gpu_milli,job\n", `p.csv:1: unknown column "job"`},
		{"a,1,1,2,500,\n", `p.csv:2: gpu_milli "500": part of each of 2 GPUs`},
		{"a,1,1,0,500,\n", `p.csv:2: gpu_milli "500": part of a GPU, but num_gpu is 0`},
		{"a,1,1,1,0,\n", `p.csv:2: gpu_milli "0": nothing of each GPU, but num_gpu is 1`},
		{"a,1,1,1,1001,\n", `p.csv:2: gpu_milli "1001": want 0 to 1000`},
		{"a,1,1,1,1000,T4||P4\n", `p.csv:2: gpu_spec "T4||P4": the name of a model is empty`},
		{"a,1,1,0,0,\na,1,1,0,0,\n", `p.csv:3: name "a": a second request of this name; the first is in line 2`},
		{"\"a\n\n\nb\",1,1,0,0,\n", `p.csv:2: name "a\n\n\nb": only printable characters`},
	})
}

func TestInvalidJobsAreRefused(t *testing.T) {
	cluster := four(t)
	read := func(r io.Reader) error {
		_, _, err := ReadJobs("j.csv", r, Options{Cluster: cluster})
		return err
	}
	header := strings.TrimSpace(jobHeader)
	refused(t, read, jobHeader, []struct{ rows, want string }{
		{"=job,submit_s,num_gpu,gpu_milli,cpu_milli,memory_mib,gpu_spec,class,priority\n", `j.csv:1: the column "duration_s" is missing`},
		{"a,0,-1,1,1000,1,1,,,\n", `j.csv:2: duration_s "-1": want 0 to`},
		{"a,-0.5,1,1,1000,1,1,,,\n", `j.csv:2: submit_s "-0.5": want 0 to`},
		{"a,0,nan,1,1000,1,1,,,\n", `j.csv:2: duration_s "nan": want a number`},
		{"a,0,1e99,1,1000,1,1,,,\n", `j.csv:2: duration_s "1e99": want 0 to 31622400 seconds`},
		{"a,0,+Inf,1,1000,1,1,,,\n", `j.csv:2: duration_s "+Inf": want a number`},
		{"a,0,1,1,1000,1,1,,,101\n", `j.csv:2: priority "101": want 0 to 100`},
		{"a,0,1,1,1000,1,1,,,\na,0,1,1,1000,1,1,,,\n", `j.csv:3: job "a": a second job of the name "a"; the first is in line 2`},
		{"a,0,1,24,1000,1,1,,,\n", `j.csv:2: num_gpu "24": the cluster could never run it: it needs 3 machines, each with 8 GPUs, 0.001 CPUs and 1 MiB; 2 have the GPUs`},
		{"a,0,1,2,1000,1,1,H100,,\n", `j.csv:2: gpu_spec "H100": the cluster could never run it: it needs 1 machines, each with 2 GPUs of h100, 0.001 CPUs and 1 MiB; 0 have the model`},
		{"a,0,1,3,1000,1,1,T4,,\n", `j.csv:2: gpu_spec "T4": the cluster could never run it: it needs 2 machines, each with 2 GPUs of t4, 0.001 CPUs and 1 MiB; 1 have the model`},
		{"a,0,1,0,0,96001,1,,,\n", `j.csv:2: cpu_milli "96001": the cluster could never run it`},
		{"a,0,1,2,1000,65000,1,T4,,\n", `j.csv:2: cpu_milli "65000": the cluster could never run it`},
		{"a,0,1,0,0,1,524289,,,\n", `j.csv:2: memory_mib "524289": the cluster could never run it`},
		{"=" + header + ",nodes\na,0,1,3,1000,1,1,,,,2\n", `j.csv:2: num_gpu "3": it does not divide by 2 nodes`},
		{"=" + header + ",nodes\na,0,1,1,500,1,1,,,,2\n", `j.csv:2: nodes "2": a gang of parts of GPUs`},
		{"=" + header + ",time_limit_s\na,0,10,0,0,1,1,,,,9\n", `j.csv:2: duration_s "10": longer than the job's time limit of 9s`},
		{"=" + header + ",preemptible\na,0,10,0,0,1,1,,,,maybe\n", `j.csv:2: preemptible "maybe": want yes or no`},
		{"=" + header + ",tasks,nodes\na,0,10,0,0,1,1,,,,1000000,2\n", `j.csv:2: tasks "1000000": nodes: 1000000 elements of 2 tasks`},
		{"=file,submit_s,duration_s\na,0,1\n", "j.csv:1: a list of job files cannot be read here"},
	})
}

// A quote that is not closed does not make the reader keep the rest of a large file.
func TestRowWithAnOpenQuoteIsBounded(t *testing.T) {
	rest := &counter{r: io.LimitReader(endless{}, 1<<30)}
	_, err := ReadMachines("m.csv", io.MultiReader(strings.NewReader(machineHeader+`"`), rest))
	if err == nil || !strings.Contains(err.Error(), "m.csv: after line 1: a row of more than 1MiB; is a quote not closed?") {
		t.Errorf(`error %v, want an error and "m.csv: after line 1: a row of more than 1MiB; is a quote not closed?" in it`, err)
	}
	if rest.n > 2*maxRow {
		t.Errorf("%d bytes were read, want at most %v", rest.n, 2*maxRow)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

type counter struct {
	r io.Reader
	n int
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

// A file that cannot be read to its end is an error, not a shorter table.
func TestReadErrorIsNotTheEndOfATable(t *testing.T) {
	broken := errors.New("input/output error")
	_, err := ReadMachines("m.csv", io.MultiReader(strings.NewReader(machineHeader+"a,1,1,0,\n"), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "m.csv: after line 2: ") {
		t.Errorf(`error %v, want broken and prefix "m.csv: after line 2: "`, err)
	}
}

func FuzzTables(f *testing.F) {
	f.Add(machineHeader + "a,1,1,8,T4\n")
	f.Add(requestHeader + "a,1,1,1,500,T4\n")
	f.Add(jobHeader + "a,0,1,16,1000,1,1,G2|T4,c,1\nb,1e3,.5,0,0,1,1,,,\n")
	f.Add("file,submit_s,duration_s,job\nx,0,1,\"a\"\n")
	f.Add("sn,cpu_milli,memory_mib,gpu,model,labels\n\"a\n\",1,1,8,T4,a=b;;\n")
	f.Fuzz(func(t *testing.T, text string) {
		o := Options{Cluster: []Machine{{Name: "a", CPUs: 8000, Memory: 1 << 30, GPUs: 8, Model: "T4", DeviceMemory: 1 << 30}}, Known: true}
		o.Open = func(string) ([]byte, error) { return []byte(text), nil }
		one := func(err error) {
			if err != nil && strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("an error of several lines: %q", err)
			}
		}
		machines, err := ReadMachines("m", strings.NewReader(text))
		one(err)
		for _, m := range machines {
			if m.Name == "" || m.CPUs < 0 || m.Memory < 0 || m.GPUs < 0 || m.GPUs > 0 && (m.Class() == "" || m.DeviceMemory <= 0) {
				t.Errorf("read %+v, want a valid machine", m)
			}
		}
		requests, err := ReadRequests("p", strings.NewReader(text))
		one(err)
		for _, x := range requests {
			if x.Name == "" || x.AllMilli() < 0 || x.Need.CPUs < 0 || x.Need.Memory < 0 {
				t.Errorf("read %+v, want a valid request", x)
			}
		}
		jobs, _, err := ReadJobs("j", strings.NewReader(text), o)
		one(err)
		for i, j := range jobs {
			if j.Name == "" || j.Submit < 0 || j.Runs < 0 || j.Bytes < 0 || i > 0 && j.Submit < jobs[i-1].Submit {
				t.Errorf("read %+v, want a valid job in order", j)
			}
			if err := j.Spec.Validate(); err != nil && j.Spec.Resources.CPUs <= 1<<16 {
				t.Errorf("read %+v, which is not valid: %v", j, err)
			}
		}
	})
}
