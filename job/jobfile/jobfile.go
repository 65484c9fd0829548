// Package jobfile reads job files: one job as YAML or JSON. An unknown field is an error that names its line.
package jobfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/musterhq/muster/job"
)

// ErrTooLarge means that a job file is larger than job.MaxSpecBytes. Put large data in files that the job reads.
var ErrTooLarge = fmt.Errorf("larger than %s", job.Size(job.MaxSpecBytes))

// Parse reads one job from text, on top of job.DefaultSpec, and validates it. Name is what errors call the file; they
// give the line as NAME:LINE. Text longer than job.MaxSpecBytes is ErrTooLarge.
func Parse(name string, text []byte) (job.Spec, error) {
	if len(text) > job.MaxSpecBytes {
		return job.Spec{}, fmt.Errorf("job file %s: %w", name, ErrTooLarge)
	}
	spec, err := decode(bytes.TrimPrefix(text, []byte("\ufeff"))) // some editors write a byte order mark
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

var errSeveral = errors.New("more than one job; put each in a file of its own")

// decode reads text as exactly one document. The YAML library panics on some malformed tags; decode turns a panic
// into an error.
func decode(text []byte) (spec job.Spec, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("not valid YAML: %v", r)
		}
	}()
	spec = job.DefaultSpec()
	dec := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict(), yaml.CustomUnmarshaler(readTime))
	if err := dec.Decode(&spec); err != nil {
		return job.Spec{}, err
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return job.Spec{}, errSeveral
	}
	return spec, nil
}

// readTime reads a time strictly. The library takes any text, and makes it the year 1.
func readTime(at *time.Time, text []byte) (err error) {
	word := strings.Trim(strings.TrimSpace(string(text)), `"'`)
	if *at, err = time.Parse(time.RFC3339, word); err != nil {
		return fmt.Errorf("begin %.40q: want RFC 3339, such as 2026-12-01T08:00:00Z; --begin takes more", word)
	}
	return nil
}

// explain turns the library's error, which may span several lines, into one line that begins with the position.
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

const maxMessage = 300 // bound on the characters of a parser's message

func oneLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:maxMessage], "") + "…"
	}
	return s
}
