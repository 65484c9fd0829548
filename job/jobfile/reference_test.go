package jobfile

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/job"
)

// namesOf returns the names of all fields of a job file.
func namesOf(of reflect.Type, within string) (names []string) {
	for f := range of.Fields() {
		name := jsonName(f)
		if name == "-" {
			continue
		}
		names = append(names, within+name)
		if f.Type == reflect.TypeFor[job.Resources]() {
			names = append(names, namesOf(f.Type, name+".")...)
		}
	}
	return names
}

// Each field has one row, and each row is about a field.
func TestReferenceIsComplete(t *testing.T) {
	want := namesOf(reflect.TypeFor[job.Spec](), "")
	var got []string
	for _, f := range Fields() {
		got = append(got, f.Name)
		if f.Kind() == "" || !strings.HasSuffix(f.Text, ".") || f.Example == "" {
			t.Errorf("%+v: kind %q, want a kind, a sentence and an example", f, f.Kind())
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the reference has\n%s\nthe job file has\n%s", got, want)
	}
}

// needs are the fields that an example needs besides its own, as lines of YAML.
var needs = map[string]string{
	"args": "script: '#!/bin/sh'", "retry_on": "retries: 1", "signal": "time_limit: 1h", "resources.gpu_model": "resources: {gpus: 1}",
	"resources.gpu_memory": "resources: {gpus: 1}", "keep_on_bad_exit": "nodes: 2", "ntasks_per_node": "nodes: 2",
	"mounts": "image: busybox", "stdin": "requeue: false", "tty": "requeue: false", "error": "output: /tmp/out",
}

// with returns a job file with this value of the field, and what it needs besides.
func with(f Field, value string) string {
	text := "command: [a]\n"
	for _, own := range []string{"command", "script", "args", "image", "mounts"} {
		if f.Name == own {
			text = ""
		}
	}
	group, inner, nested := strings.Cut(f.Name, ".")
	switch more := needs[f.Name]; {
	case nested && more != "":
		text += strings.TrimSuffix(more, "}") + ", " + inner + ": " + value + "}\n"
	case nested:
		text += group + ": {" + inner + ": " + value + "}\n"
	default:
		text += more + "\n" + f.Name + ": " + value + "\n"
	}
	return text
}

// Each example is valid and sets its field.
func TestExamplesOfTheReference(t *testing.T) {
	for _, f := range Fields() {
		spec, err := one("j", []byte(with(f, f.Example)))
		if err != nil {
			t.Errorf("%s: %v\n%s", f.Name, err, with(f, f.Example))
			continue
		}
		v := reflect.ValueOf(spec)
		for name := range strings.SplitSeq(f.Name, ".") {
			of, _ := fieldNamed(v.Type(), name)
			v = v.FieldByIndex(of.Index)
		}
		if unset, _ := f.find(); reflect.DeepEqual(v.Interface(), unset.Interface()) {
			t.Errorf("%s: the example %s sets nothing", f.Name, f.Example)
		}
	}
}

// The bounds are those of the validation: the largest value is accepted, and the next one is not.
func TestBoundsOfTheReferenceAreThoseOfTheValidation(t *testing.T) {
	tried := 0
	for _, f := range Fields() {
		if f.Most == 0 || f.Kind() == "number" {
			continue
		}
		tried++
		write := func(n float64) string {
			if f.Kind() == "list" {
				return fmt.Sprintf("[%.0f]", n)
			}
			return fmt.Sprintf("%.0f", n)
		}
		for value, good := range map[string]bool{write(f.Least): true, write(f.Most): true, write(f.Least - 1): false, write(f.Most + 1): false} {
			if _, err := one("j", []byte(with(f, value))); (err == nil) != good {
				t.Errorf("%s: %s: %v, want an error exactly beyond the bounds", f.Name, value, err)
			}
		}
	}
	for _, f := range Fields() {
		if (f.Kind() == "whole number") != (f.Most > 0 && f.Kind() != "number" && f.Kind() != "list") {
			t.Errorf("%s is a %s with the bounds %v to %v, want bounds exactly for a whole number", f.Name, f.Kind(), f.Least, f.Most)
		}
	}
	if tried < 8 {
		t.Errorf("only %d fields have bounds, want at least 8", tried)
	}
}

func TestDefaultsOfTheReferenceAreThoseOfASpec(t *testing.T) {
	got := map[string]string{}
	for _, f := range Fields() {
		if d := f.Default(); d != "" {
			got[f.Name] = d
		}
	}
	for name, want := range map[string]string{"priority": "50", "requeue": "true", "resources.cpus": "1", "hold": "false"} {
		if got[name] != want {
			t.Errorf("default of %s: %q, want %q", name, got[name], want)
		}
	}
}
