package load

// Tables: CSV files with a header. An error names the file, the line and the column.
//
// Every row counts: a figure is worth nothing if a part of the load was dropped or misread silently. So an unknown column is
// an error, because it may be a misspelt optional one. A job that the cluster could never run is an error too. Notes say what
// a reader changed, such as the order of the rows.

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/musterhq/muster/job"
)

// Bounds of what a file may hold.
const (
	// MaxMachines bounds the machines of a cluster.
	MaxMachines = 200_000
	// MaxJobs bounds the jobs of a load, and the rows of any table.
	MaxJobs = 5_000_000

	maxRow    = 1 << 20 // bytes of a row: an unclosed quote would make the rest of the file one row
	maxText   = job.MaxName
	maxMemory = 1 << 50                 // bytes
	maxCPUs   = 1 << 24                 // of a machine, in thousandths
	maxTime   = 36_500 * 24 * time.Hour // of a submission
	milli     = 1000
)

var (
	errLongRow = fmt.Errorf("a row of more than %s; is a quote not closed?", job.Size(maxRow))
	errNumber  = errors.New("want a number")
	errWhole   = errors.New("want a whole number")
)

// column is a column that a table may have, or must have.
type column struct {
	name string
	must bool
}

func must(names ...string) []column { return columns(true, names) }

func may(names ...string) []column { return columns(false, names) }

func columns(required bool, names []string) []column {
	var out []column
	for _, n := range names {
		out = append(out, column{n, required})
	}
	return out
}

// table reads the rows of a CSV file. The first error is kept: later calls return zero values.
type table struct {
	name   string
	csv    *csv.Reader
	source *bounded
	header []string       // columns that the file has
	at     map[string]int // the index of each column's field
	fields []string
	line   int
	rows   int
	texts  map[string]string // repeated texts are kept once
	err    error
}

// bounded is a reader that bounds what is read for one row.
type bounded struct {
	r    io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errLongRow
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// openTable reads the header and checks its columns.
func openTable(name string, r io.Reader, known []column) (*table, error) {
	t, err := readHeader(name, r)
	if err != nil {
		return nil, err
	}
	return t, t.expect(known)
}

// readHeader reads the header. The columns may be in any order; a duplicate column is an error.
func readHeader(name string, r io.Reader) (*table, error) {
	t := newTable(name, r)
	if !t.read() {
		return nil, t.emptyOr()
	}
	for i, raw := range t.fields {
		c := strings.TrimSpace(raw)
		if t.has(c) {
			return nil, t.errorf("the column %.40q is there twice", c)
		}
		t.at[strings.Clone(c)] = i
		t.header = append(t.header, strings.Clone(c))
	}
	return t, nil
}

// expect returns an error if the header has a column that is not known, or lacks one that must be there.
func (t *table) expect(known []column) error {
	for _, c := range t.header {
		if !slices.ContainsFunc(known, func(k column) bool { return k.name == c }) {
			return t.errorf("unknown column %.40q; %s", c, usage(known))
		}
	}
	for _, k := range known {
		if k.must && !t.has(k.name) {
			return t.errorf("the column %q is missing; %s", k.name, usage(known))
		}
	}
	return nil
}

// byteOrderMark begins the files of some programs, even if a quote follows.
const byteOrderMark = "\ufeff"

func newTable(name string, r io.Reader) *table {
	text := bufio.NewReader(r)
	if mark, _ := text.Peek(len(byteOrderMark)); string(mark) == byteOrderMark {
		_, _ = text.Discard(len(byteOrderMark))
	}
	t := &table{name: name, source: &bounded{r: text}, at: map[string]int{}, texts: map[string]string{}, line: 1}
	t.csv = csv.NewReader(t.source)
	t.csv.FieldsPerRecord = -1
	t.csv.ReuseRecord = true
	return t
}

// usage lists the columns.
func usage(known []column) string {
	var must, may []string
	for _, k := range known {
		if k.must {
			must = append(must, k.name)
		} else {
			may = append(may, k.name)
		}
	}
	text := "want " + strings.Join(must, ",")
	if len(may) > 0 {
		text += "; may have " + strings.Join(may, ",")
	}
	return text
}

func (t *table) emptyOr() error {
	if t.err == nil {
		return fmt.Errorf("%s: it is empty; the first line names the columns", t.name)
	}
	return t.err
}

// read reads a row of any length.
func (t *table) read() bool {
	t.source.left = maxRow
	fields, err := t.csv.Read()
	var bad *csv.ParseError
	switch {
	case errors.Is(err, io.EOF):
		return false
	case errors.As(err, &bad):
		t.line = bad.Line
		_ = t.errorf("%w", bad.Err)
		return false
	case err != nil:
		t.err = fmt.Errorf("%s: after line %d: %w", t.name, t.line, err)
		return false
	}
	t.fields = fields
	t.line, _ = t.csv.FieldPos(0)
	return true
}

// next moves to the next row. It returns false at the end and after an error.
func (t *table) next(limit int) bool {
	if t.err != nil || !t.read() {
		return false
	}
	if len(t.fields) != len(t.at) {
		_ = t.errorf("%d fields, but the first line names %d columns", len(t.fields), len(t.at))
		return false
	}
	if t.rows++; t.rows > limit {
		_ = t.errorf("more than %d rows", limit)
		return false
	}
	return true
}

// end returns the first error. A table without rows is an error.
func (t *table) end() error {
	if t.err == nil && t.rows == 0 {
		return fmt.Errorf("%s: only a header, and no row", t.name)
	}
	return t.err
}

// errorf records an error at the present line.
func (t *table) errorf(format string, args ...any) error {
	if t.err == nil {
		t.err = fmt.Errorf("%s:%d: %w", t.name, t.line, fmt.Errorf(format, args...))
	}
	return t.err
}

// fail records an error in a field of the present line.
func (t *table) fail(column, format string, args ...any) {
	_ = t.errorf("%s %.40q: %w", column, t.field(column), fmt.Errorf(format, args...))
}

func (t *table) has(column string) bool {
	_, there := t.at[column]
	return there
}

// field returns a field without spaces around it; it is empty if the table does not have the column.
func (t *table) field(column string) string {
	i, there := t.at[column]
	if !there || i >= len(t.fields) {
		return ""
	}
	return strings.TrimSpace(t.fields[i])
}

// text returns a field that is printable and short, or empty.
func (t *table) text(column string) string {
	s := t.field(column)
	if len(s) > maxText {
		t.fail(column, "%d bytes; at most %d", len(s), maxText)
		return ""
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.fail(column, "only printable characters")
		return ""
	}
	kept, there := t.texts[s]
	if !there {
		kept = strings.Clone(s) // the row's memory is reused
		if len(t.texts) < maxKept {
			t.texts[kept] = kept
		}
	}
	return kept
}

// maxKept bounds the texts that are kept for reuse.
const maxKept = 10_000

// whole returns a whole number from least to most. A decimal point with zeros after it is allowed.
func (t *table) whole(column string, least, most int) int {
	s := t.field(column)
	n, err := strconv.Atoi(s)
	if err != nil {
		x, err := parseNumber(s)
		if err != nil {
			t.fail(column, "%w", err)
			return 0
		}
		if n = int(x); x != math.Trunc(x) || math.Abs(x) > 1<<53 {
			t.fail(column, "%w", errWhole)
			return 0
		}
	}
	if n < least || n > most {
		t.fail(column, "want %d to %d", least, most)
		return 0
	}
	return n
}

// wholeOr returns a whole number, or another one if the field is empty.
func (t *table) wholeOr(column string, least, most, otherwise int) int {
	if t.field(column) == "" {
		return otherwise
	}
	return t.whole(column, least, most)
}

// mebibytes returns a number of MiB, which may have a fraction, in bytes.
func (t *table) mebibytes(column string) job.Size {
	x, err := parseNumber(t.field(column))
	if err != nil {
		t.fail(column, "%w", err)
		return 0
	}
	if !(x >= 0 && x*(1<<20) <= maxMemory) {
		t.fail(column, "want 0 to %d MiB", maxMemory>>20)
		return 0
	}
	return job.Size(math.Round(x * (1 << 20)))
}

// seconds returns a number of seconds, which may have a fraction, from 0 to most.
func (t *table) seconds(column string, most time.Duration) time.Duration {
	d, err := parseSeconds(t.field(column))
	if err != nil {
		t.fail(column, "%w", err)
		return 0
	}
	if d < 0 || d > most {
		t.fail(column, "want 0 to %.0f seconds", most.Seconds())
		return 0
	}
	return d
}

// yes returns the value of a yes-or-no field; empty means no.
func (t *table) yes(column string) bool {
	switch strings.ToLower(t.field(column)) {
	case "1", "yes", "true":
		return true
	case "", "0", "no", "false":
		return false
	}
	t.fail(column, "want yes or no")
	return false
}

// parseNumber refuses what ParseFloat accepts but no table means: infinities, NaN, hexadecimal digits and underscores.
func parseNumber(s string) (float64, error) {
	if s == "" {
		return 0, fmt.Errorf("it is empty: %w", errNumber)
	}
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || strings.Trim(s, "0123456789.+-eE") != "" {
		return 0, errNumber
	}
	return x, nil
}

// parseSeconds is exact to a nanosecond.
func parseSeconds(s string) (time.Duration, error) {
	x, err := parseNumber(s)
	if err != nil {
		return 0, err
	}
	if math.Abs(x) > maxTime.Seconds() {
		return maxTime + 1, nil
	}
	if d, err := time.ParseDuration(s + "s"); err == nil { // without an exponent
		return d, nil
	}
	return time.Duration(math.Round(x * float64(time.Second))), nil
}
