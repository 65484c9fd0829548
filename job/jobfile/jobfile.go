// Package jobfile reads job files: one job as YAML or JSON, or several jobs as YAML documents that are separated by lines
// of three dashes. An unknown field is an error that names its line.
package jobfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/job/yamldoc"
)

// ErrTooLarge means that a job file is larger than job.MaxSpecBytes. Put large data in files that the job reads.
var ErrTooLarge = fmt.Errorf("larger than %s", job.Size(job.MaxSpecBytes))

// MaxJobs bounds the jobs of one file.
const MaxJobs = 1000

// Parse reads the jobs of a file, each on top of job.DefaultSpec, and validates them as drafts. Name is what errors call
// the file; they give the line as NAME:LINE. Text longer than job.MaxSpecBytes is ErrTooLarge.
func Parse(name string, text []byte) (File, error) {
	f := File{Name: name}
	if len(text) > job.MaxSpecBytes {
		return f, fmt.Errorf("job file %s: %w", name, ErrTooLarge)
	}
	var err error
	if f.Jobs, err = decode(bytes.TrimPrefix(text, []byte("\ufeff"))); err != nil { // some editors write a byte order mark
		return f, explain(name, err)
	}
	for _, j := range f.Jobs {
		at := "job file " + name
		if len(f.Jobs) > 1 {
			at = f.at(j.Line)
		}
		if err := j.Spec.ValidateDraft(); err != nil {
			return f, fmt.Errorf("%s: %w", at, err)
		}
	}
	if err := f.setDepends(); err != nil {
		return f, err
	}
	if err := f.checkNames(); err != nil {
		return f, err
	}
	_, err = f.Order()
	return f, err
}

// decode reads the documents of a text. The YAML library panics on some malformed tags; decode turns a panic into an
// error.
func decode(text []byte) (jobs []Job, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("not valid YAML: %v", r)
		}
	}()
	file, err := yamldoc.Parse(text, yamldoc.Usual)
	if err != nil {
		return nil, err
	}
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.NullType {
			continue // nothing between two separators
		}
		if len(jobs) >= MaxJobs {
			return nil, fmt.Errorf("more than %d jobs", MaxJobs)
		}
		j := Job{Spec: job.DefaultSpec()}
		if err := yaml.NodeToValue(doc.Body, &j.Spec, rules()...); err != nil {
			return nil, cmp.Or(badField(doc.Body), err)
		}
		j.Line, j.lines = linesOf(doc.Body)
		jobs = append(jobs, j)
	}
	if len(jobs) == 0 {
		return nil, io.EOF
	}
	return jobs, nil
}

// linesOf returns the line in which a job begins, and the lines of the elements of its dependency field.
func linesOf(body ast.Node) (first int, dependencies []int) {
	first = lineOf(body)
	fields, ok := body.(ast.MapNode)
	if !ok {
		return first, nil
	}
	for it := fields.MapRange(); it.Next(); {
		if line := lineOf(it.Key()); line > 0 && (first == 0 || line < first) {
			first = line
		}
		list, ok := it.Value().(*ast.SequenceNode)
		if !ok || it.Key().GetToken() == nil || it.Key().GetToken().Value != "dependency" {
			continue
		}
		for _, x := range list.Values {
			dependencies = append(dependencies, lineOf(x))
		}
	}
	return first, dependencies
}

func lineOf(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 0
}

// rules returns the options that make decoding stricter than the library is by default.
func rules() []yaml.DecodeOption {
	return []yaml.DecodeOption{yaml.Strict(), yaml.CustomUnmarshaler(readTime), yaml.CustomUnmarshaler(readWhole)}
}

// readWhole reads a whole number. The library would drop the digits after the point.
func readWhole(n *int, text []byte) error {
	var v any
	if err := yaml.Unmarshal(text, &v); err != nil {
		return err
	}
	if word, ok := v.(string); ok { // the library takes numbers in quotes, and 1e3 is text to it
		if x, err := strconv.ParseFloat(word, 64); err == nil {
			v = x
		}
	}
	const most = 1 << 53 // above it a float64 no longer means one whole number
	switch v := v.(type) {
	case uint64:
		if v <= math.MaxInt {
			*n = int(v)
			return nil
		}
	case int64:
		*n = int(v)
		return nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) <= most {
			*n = int(v)
			return nil
		}
	}
	return wholeError(strings.TrimSpace(string(text)))
}

// wholeError is a value that is not a whole number.
type wholeError string

func (e wholeError) Error() string { return fmt.Sprintf("want a whole number, not %.40s", string(e)) }

// readTime reads a time strictly. The library accepts any text, and reads it as the year 1.
func readTime(at *time.Time, text []byte) (err error) {
	word := strings.Trim(strings.TrimSpace(string(text)), `"'`)
	if *at, err = time.Parse(time.RFC3339, word); err != nil {
		return fmt.Errorf("%.40q: want RFC 3339, such as 2026-12-01T08:00:00Z; --begin takes more", word)
	}
	return nil
}

// explain turns the library's error, which may span several lines, into one line that begins with the position.
func explain(name string, err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("job file %s: it is empty", name)
	}
	if field, ok := errors.AsType[fieldError](err); ok {
		return fmt.Errorf("job file %s:%d: %s", name, field.line, oneLine(field.text))
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
