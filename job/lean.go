package job

// The bulk of a job file: what only the start of a task needs. While a job waits, it need not be in memory.
// See docs/adr, ADR 123.

import "fmt"

// MaxBulk is the most bytes of bulk with which a job file stays in memory as it is. The usual script is smaller.
const MaxBulk = 4 << 10

// PartFile is the part of a job that holds its job file, if that is not in the header. Reading the other parts does not
// read it.
const PartFile = "f"

// Bulk returns about how many bytes the fields take that Lean leaves out.
func (s *Spec) Bulk() int {
	n := len(s.Script)
	for _, list := range [][]string{s.Command, s.EachLine, s.Upload, s.Download} {
		n += bytesOf(list)
	}
	for _, m := range []map[string]string{s.Params, s.Env} {
		for k, v := range m {
			n += len(k) + len(v) + perText
		}
	}
	return n
}

// perText is what each text of a list costs besides its characters.
const perText = 16

func bytesOf(list []string) int {
	n := perText * len(list)
	for _, text := range list {
		n += len(text)
	}
	return n
}

// Lean returns the spec without its bulk. It keeps what placement and the states of tasks depend on. Its tasks are
// numbered as before. The spec must be valid.
func (s Spec) Lean() Spec {
	if n := len(s.EachLine); n > 0 {
		limit := s.Array // with lines it is empty, or a limit such as %8
		s.Array = fmt.Sprintf("0-%d%s", n-1, limit)
	}
	s.Script, s.Command, s.EachLine, s.Upload, s.Download, s.Params, s.Env = "", nil, nil, nil, nil, nil, nil
	return s
}

// LeanBytes returns about how many bytes the texts of a lean spec take.
func (s *Spec) LeanBytes() int {
	n := len(s.Name) + len(s.Constraint) + len(s.Prefer) + len(s.Array) + len(s.Output) + len(s.Error) + len(s.Workdir)
	for _, list := range [][]string{s.NodeList, s.Exclude, s.Dependency, s.Mounts} {
		n += bytesOf(list)
	}
	return n
}
