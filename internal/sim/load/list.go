package load

// Lists of muster's own job files, with the time at which each is submitted.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/job/jobfile"
)

var listColumns = append(must("file", "submit_s", "duration_s"), may("job", "user", "class", "files_mib")...)

// maxListed bounds the jobs of a list's files, because each keeps the text of its file in memory.
const maxListed = 100_000

// readList reads a list of job files. Its columns, in any order, are
//
//	file        a job file, as for muster submit -F
//	submit_s    when its jobs are submitted, in seconds from the beginning of the simulation
//	duration_s  how long each task of its jobs runs, in seconds
//	job         optional: the name in the results; for a file with one job
//	user        optional: whose they are
//	class       optional: by which results are grouped
//	files_mib   optional: size of the files that each job uploads, in MiB; empty: 0
//
// A file may be listed many times. Without a column "job", jobs have the names in their files, or else the names of
// their files; further jobs of the same name get -2, -3 and so on. Commands and images are not run, and uploads are not
// read. It is an error if a job has what a simulation does not support: dependencies, hold, or a time to begin.
func (rd *jobReader) readList() error {
	if err := rd.expect(listColumns); err != nil {
		return err
	}
	if rd.o.Open == nil {
		return rd.errorf("a list of job files cannot be read here")
	}
	files := map[string]jobfile.File{}
	names := map[string]int{}
	for rd.next(maxListed) {
		name := rd.text("file")
		file, known := files[name]
		if !known {
			file = rd.open(name)
			files[name] = file
		}
		given := rd.text("job")
		if given != "" && len(file.Jobs) > 1 {
			rd.fail("job", "%s has %d jobs; leave it empty", name, len(file.Jobs))
		}
		if len(rd.jobs)+len(file.Jobs) > maxListed {
			return rd.errorf("more than %d jobs", maxListed)
		}
		for _, f := range file.Jobs {
			called := given
			if called == "" {
				called = unique(names, f, name)
			}
			rd.add(rd.listed(f, called), "job")
		}
	}
	return rd.end()
}

// FilesBeside opens the files that a list names: relative names are in the directory of the list.
func FilesBeside(list string) func(file string) ([]byte, error) {
	return func(file string) ([]byte, error) {
		if !filepath.IsAbs(file) {
			file = filepath.Join(filepath.Dir(list), file)
		}
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return io.ReadAll(io.LimitReader(f, job.MaxSpecBytes+1)) // one byte more than jobfile accepts
	}
}

// open reads a job file.
func (rd *jobReader) open(name string) jobfile.File {
	if name == "" {
		rd.fail("file", "the name of a job file is needed")
		return jobfile.File{}
	}
	text, err := rd.o.Open(name)
	if err != nil {
		rd.fail("file", "%w", err)
		return jobfile.File{}
	}
	file, err := jobfile.Parse(name, text)
	if err != nil {
		rd.fail("file", "%w", err)
		return jobfile.File{}
	}
	for _, f := range file.Jobs {
		if err := unfollowed(f.Spec); err != nil {
			rd.fail("file", "job file %s:%d: %w", name, f.Line, err)
		}
	}
	return file
}

// unfollowed returns an error if a spec has something that a simulation does not support.
func unfollowed(s job.Spec) error {
	switch {
	case len(s.Dependency) > 0:
		return errors.New("dependency: a simulation does not follow it; submit the job at its time instead")
	case s.Begin != nil:
		return errors.New("begin: a simulation has no calendar; submit the job at its time instead")
	case s.Hold:
		return errors.New("hold: nobody would release the job")
	}
	return nil
}

// unique returns the name that a job gets from its file, with a number if earlier jobs of the list have the same name.
func unique(names map[string]int, f jobfile.Job, file string) string {
	name := f.Spec.Name
	if name == "" {
		name = strings.TrimSuffix(path.Base(file), path.Ext(file))
	}
	names[name]++
	if n := names[name]; n > 1 {
		return fmt.Sprintf("%s-%d", name, n)
	}
	return name
}

// listed returns a job of a file that a row names.
func (rd *jobReader) listed(f jobfile.Job, name string) Job {
	j := Job{Name: name, User: rd.text("user"), Class: rd.text("class"), Spec: f.Spec}
	rd.times(&j)
	s := &j.Spec
	s.Resources.CPUs *= milli
	s.Preemptible = s.Preemptible || rd.o.Preemptible
	s.Command, s.Script, s.Image, s.Upload, s.Mounts = command, "", "", nil, nil
	rd.limit(&j, f.Spec.TimeLimit)
	rd.check(j.Spec)
	return j
}
