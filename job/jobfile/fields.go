package jobfile

// Errors of a job file that name the field and its line.

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/musterhq/muster/job"
)

// badField returns an error that names the first field of a document that does not decode into a job. It returns nil if
// each field alone does, and if the document has no fields.
func badField(body ast.Node) error {
	return badFieldOf(body, "", reflect.TypeFor[job.Spec]())
}

func badFieldOf(body ast.Node, within string, of reflect.Type) error {
	fields, ok := body.(ast.MapNode)
	if !ok {
		return nil
	}
	for it := fields.MapRange(); it.Next(); {
		alone := reflect.New(of)
		err := yaml.NodeToValue(it.KeyValue(), alone.Interface(), rules()...)
		if err == nil {
			continue
		}
		key := it.Key().GetToken()
		if key == nil {
			return nil
		}
		f, known := fieldNamed(of, key.Value)
		if !known {
			return fieldError{lineOf(it.Key()), fmt.Sprintf("unknown field %.60q", key.Value) + nearest(of, key.Value)}
		}
		name := within + key.Value
		if f.Type.Kind() == reflect.Struct {
			if err := badFieldOf(it.Value(), name+".", f.Type); err != nil {
				return err
			}
		}
		return fieldError{lineOf(it.Key()), name + ": " + wrong(name, f.Type, it.Value(), err)}
	}
	return nil
}

// fieldError is an error in one line of a job file.
type fieldError struct {
	line int
	text string
}

func (e fieldError) Error() string { return e.text }

// kinds are the names of kinds of values in messages.
var kinds = map[ast.NodeType]string{
	ast.StringType: "text", ast.LiteralType: "text", ast.SequenceType: "a list", ast.MappingType: "a mapping", ast.MappingValueType: "a mapping",
	ast.IntegerType: "a number", ast.FloatType: "a number", ast.BoolType: "true or false",
}

// wrong returns a message that says what a field must be, and what it is.
func wrong(name string, t reflect.Type, value ast.Node, err error) string {
	is, mismatch := kinds[value.Type()], (*yaml.TypeError)(nil)
	want := map[reflect.Kind]string{
		reflect.Int: "a number", reflect.Float64: "a number", reflect.String: "text", reflect.Bool: "true or false",
		reflect.Slice: "a list", reflect.Map: "a mapping such as {name: value}", reflect.Struct: "a mapping such as {cpus: 4}",
	}[t.Kind()]
	var node *yaml.UnexpectedNodeTypeError
	whole, fraction := errors.AsType[wholeError](err)
	switch {
	case name == "command" && is == "text":
		return fmt.Sprintf("want a list of words, such as [python, train.py]; a line for a shell goes in `script: %.100s`", value.GetToken().Value)
	case fraction && (is == "a number" || is == "" || t.Kind() == reflect.Slice):
		return whole.Error()
	case !fraction && !errors.As(err, &mismatch) && !errors.As(err, &node) || want == "":
		return plainMessage(err)
	case is == "" || strings.HasPrefix(want, is):
		return "want " + want + " of other things" // such as a list of lists
	}
	return fmt.Sprintf("want %s, not %s", want, is)
}

// plainMessage returns the message of the library's error, or of the field's own parser, without its position.
func plainMessage(err error) string {
	if at, ok := errors.AsType[yaml.Error](err); ok {
		return oneLine(at.GetMessage())
	}
	return oneLine(err.Error())
}

// fieldNamed returns the field with that name in a job file.
func fieldNamed(of reflect.Type, name string) (reflect.StructField, bool) {
	for f := range of.Fields() {
		if jsonName(f) == name {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// nearest suggests the field whose name is most like the word, if one is like it.
func nearest(of reflect.Type, word string) string {
	var names []string
	for f := range of.Fields() {
		if jsonName(f) != "-" {
			names = append(names, jsonName(f))
		}
	}
	best := Nearest(names, word)
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// Nearest returns the name that is most like a misspelt word, or nothing if none is like it.
func Nearest(names []string, word string) string {
	if len(word) > 60 {
		return ""
	}
	best, least := "", 1+len(word)/3 // with more changes it is another word
	for _, name := range names {
		if d := changes(word, name); d <= least {
			best, least = name, d-1
		}
	}
	return best
}

// changes returns the edit distance: how many letters must be inserted, deleted or replaced to turn one word into the
// other.
func changes(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := before
			if a[i] != b[j] {
				cost++
			}
			before = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
