package job

// Formats: which version of the messages between daemons a job needs. A host that does not know a field of a job file
// would refuse the job, or run it without what the field asks for. See docs/adr, ADR 165.

// Format numbers the versions of what daemons say about jobs: the fields of a job file and of the messages about its
// tasks. A higher format includes all lower ones. 0 stands for the format of this daemon.
type Format int

// The formats. Daemons state their format since FormatStated. The format of an earlier daemon follows from the features
// that it reports.
const (
	FormatFirst  Format = iota + 1
	FormatArrays        // arrays, job files that are named by their digest, exclusive hosts
	FormatGangs         // gangs, input of tasks
	FormatRoles         // roles, signed labels, scripts of Slurm
	FormatStated        // a daemon says its format, and refuses a job with a field that it does not know instead of ending the session

	// FormatNow is the format of this daemon. A new field of Spec gets a new number, above the highest that daemons in
	// use have, here and in formats.
	FormatNow = FormatStated
)

// formats lists the fields of the job file, by their names there, that were added after FormatFirst and that a host of
// its tasks must know. The others are in firstFields and ownersFields.
var formats = []struct {
	field string
	since Format
	set   func(s *Spec) bool
}{
	{"array", FormatArrays, func(s *Spec) bool { return s.Array != "" }},
	{"each_line", FormatArrays, func(s *Spec) bool { return len(s.EachLine) > 0 }},
	{"exclusive", FormatArrays, func(s *Spec) bool { return s.Exclusive }},
	{"keep_on_bad_exit", FormatArrays, func(s *Spec) bool { return s.KeepOnBadExit }},
	{"ntasks_per_node", FormatArrays, func(s *Spec) bool { return s.TasksPerNode != 0 }},
	{"retry_on", FormatArrays, func(s *Spec) bool { return len(s.RetryOn) > 0 }},
	{"nodes", FormatGangs, func(s *Spec) bool { return s.Nodes > 1 }},
	{"stdin", FormatGangs, func(s *Spec) bool { return s.Stdin }},
	{"tty", FormatGangs, func(s *Spec) bool { return s.TTY != "" }},
	{"trusted_labels", FormatRoles, func(s *Spec) bool { return s.TrustedLabels }},
	{"share_output", FormatRoles, func(s *Spec) bool { return s.ShareOutput }},
	{"args", FormatRoles, func(s *Spec) bool { return len(s.Args) > 0 }},
	{"submit_dir", FormatRoles, func(s *Spec) bool { return s.SubmitDir != "" }},
	{"slurm_env", FormatRoles, func(s *Spec) bool { return s.SlurmEnv }},
}

// NeededFormat returns the format that a host must have to run tasks of the job, and the field that needs it. The field is
// empty if every format will do.
func (s *Spec) NeededFormat() (need Format, field string) {
	need = FormatFirst
	for i := range formats {
		if f := &formats[i]; f.since > need && f.set(s) {
			need, field = f.since, f.field
		}
	}
	return need, field
}
