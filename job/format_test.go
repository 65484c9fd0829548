package job

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// firstFields are the fields of the job file that every version knows. ownersFields are those that its hosts never see
// (see Spec.TaskFile) and that need no format.
var (
	firstFields = []string{
		"name", "command", "script", "params", "image", "env", "workdir", "resources", "time_limit", "grace", "priority",
		"preemptible", "retries", "requeue", "partition", "lease", "constraint", "prefer", "nodelist", "exclude", "policy", "upload",
		"tree", "download", "mounts", "output", "error", "signal", "hold", "checkpoint_exit_code",
		"cpus", "memory", "gpus", "gpu_model", "gpu_memory", "gpu_share",
	}
	ownersFields = []string{"default_time", "begin", "dependency", "kill_on_invalid_dep", "project", "max_failures"}
)

// Each field of a job file has a first format, so that no field can be added that hosts of earlier versions get
// unasked.
func TestEveryFieldHasAFormat(t *testing.T) {
	known := map[string]int{}
	for _, name := range slices.Concat(firstFields, ownersFields) {
		known[name]++
	}
	for _, f := range formats {
		known[f.field]++
		if f.since <= FormatFirst || f.since > FormatNow {
			t.Errorf("%s: format %d, want more than %v and at most %v", f.field, f.since, FormatFirst, FormatNow)
		}
	}
	var check func(of reflect.Type)
	check = func(of reflect.Type) {
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name == "-" {
				continue
			}
			if known[name] != 1 {
				t.Errorf("the field %s of %s is in %d of the lists of formats; give it a format of its own in job/format.go, want 1", name, of.Name(), known[name])
			}
			delete(known, name)
			if field.Type == reflect.TypeFor[Resources]() {
				check(reflect.TypeFor[Resources]())
			}
		}
	}
	check(reflect.TypeFor[Spec]())
	for name := range known {
		t.Errorf("%s is not a field of a job file", name)
	}
}

// A job needs the format of the newest field that it sets, and a plain job needs none. Fields that only the owner needs
// are not in the file of the tasks.
func TestJobNeedsTheFormatOfItsNewestField(t *testing.T) {
	plain := DefaultSpec()
	plain.Command, plain.Env = []string{"true"}, map[string]string{"A": "b"}
	if need, field := plain.NeededFormat(); need != FormatFirst || field != "" {
		t.Errorf("a plain job needs %d for %q, want %v and none", need, field, FormatFirst)
	}
	for field, set := range map[string]struct {
		change func(*Spec)
		want   Format
	}{
		"exclusive":  {func(s *Spec) { s.Exclusive = true }, FormatArrays},
		"array":      {func(s *Spec) { s.Array = "0-3" }, FormatArrays},
		"nodes":      {func(s *Spec) { s.Nodes, s.Array = 2, "0-3" }, FormatGangs},
		"submit_dir": {func(s *Spec) { s.SubmitDir, s.TTY = "/x", "24x80" }, FormatRoles},
	} {
		s := plain
		set.change(&s)
		if need, got := s.NeededFormat(); need != set.want || got != field {
			t.Errorf("%s: needs %d for %q, want %v and %v", field, need, got, set.want, field)
		}
	}
	owners := plain
	begin := time.Unix(1, 0)
	owners.DefaultTime, owners.Begin, owners.Dependency, owners.KillOnInvalidDep, owners.Project = true, &begin, []string{"afterok:x"}, true, "p"
	f, err := owners.TaskFile()
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(f.Text(), &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range ownersFields {
		if _, there := fields[name]; there {
			t.Errorf("hosts get the field %s: %v", name, slices.Sorted(maps.Keys(fields)))
		}
	}
}
