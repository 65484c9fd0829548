// Package jobfile reads job files: one job as YAML or JSON, strictly. A field
// that a job does not have is an error that names its line.
package jobfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/musterhq/muster/job"
)

// ErrTooLarge is a job file above job.MaxSpecBytes. Put bulk in files that the
// job reads.
var ErrTooLarge = fmt.Errorf("larger than %s", job.Size(job.MaxSpecBytes))

// Parse reads one job from text, on top of job.DefaultSpec, and validates it. Name is what errors call the file; they
// give the line as NAME:LINE. Text longer than job.MaxSpecBytes is ErrTooLarge.
func Parse(name string, text []byte) (job.Spec, error) {
	if len(text) > job.MaxSpecBytes {
		return job.Spec{}, fmt.Errorf("job file %s: %w", name, ErrTooLarge)
	}
	spec, err := decode(bytes.TrimPrefix(text, []byte("\ufeff"))) // some editors begin a file with it
	if errors.Is(err, errSeveral) {
		return job.Spec{}, fmt.Errorf("job file %s: %w", name, err)
	}
	if err != nil {
		return job.Spec{}, explain(name, err)
	}
	if err := spec.Validate(); err != nil {
		return job.Spec{}, fmt.Errorf("job file %s: %w", name, err)
	}
	return spec, nil
}

var errSeveral = errors.New("more than one job; give each a file of its own")

// decode reads the one document of text. The library panics on some malformed
// tags (found by fuzzing), which here is a file that cannot be read.
func decode(text []byte) (spec job.Spec, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("not YAML that can be read: %v", r)
		}
	}()
	spec = job.DefaultSpec()
	dec := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict())
	if err := dec.Decode(&spec); err != nil {
		return job.Spec{}, err
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return job.Spec{}, errSeveral
	}
	return spec, nil
}

// explain turns the library's error, which may show the source over several
// lines, into one line with the place first.
func explain(name string, err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("job file %s: it is empty", name)
	}
	var at yaml.Error
	if errors.As(err, &at) && at.GetToken() != nil && at.GetToken().Position != nil {
		return fmt.Errorf("job file %s:%d: %s", name, at.GetToken().Position.Line, oneLine(at.GetMessage()))
	}
	return fmt.Errorf("job file %s: %s", name, oneLine(err.Error()))
}

const maxMessage = 300 // letters of a parser's message that are worth a line

func oneLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:maxMessage], "") + "…"
	}
	return s
}
