package sim

// How much a core holds (P3): the lengths of all lists and maps that can be reached from it, by the field that holds
// them.

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// sizes are summed lengths by type and field, as "scheduler.Core.offers".
type sizes map[string]int

// sizesOf walks all that can be reached from a pointer to a struct. Unexported fields can be measured, though not read.
func sizesOf(core any) sizes {
	s := sizes{}
	v := reflect.ValueOf(core)
	s.walk(v, v.Type().String(), map[uintptr]bool{})
	return s
}

// constants are fields that do not change while a core lives, or that belong to a job.
var constants = []string{".cfg", ".Spec", ".spec", ".clauses", ".Profile", ".profile", ".Links", ".policy", ".rng", ".chance", ".log"}

func (s sizes) walk(v reflect.Value, path string, seen map[uintptr]bool) {
	switch v.Kind() { //nolint:exhaustive // all other kinds hold nothing
	case reflect.Pointer:
		if v.IsNil() || seen[v.Pointer()] {
			return
		}
		seen[v.Pointer()] = true
		s.walk(v.Elem(), v.Type().Elem().String(), seen)
	case reflect.Interface:
		if !v.IsNil() {
			s.walk(v.Elem(), path, seen)
		}
	case reflect.Struct:
		if v.Type().PkgPath() == "time" || v.Type().PkgPath() == "unique" {
			return
		}
		for i := range v.NumField() {
			name := "." + v.Type().Field(i).Name
			if !slices.Contains(constants, name) {
				s.walk(v.Field(i), v.Type().String()+name, seen)
			}
		}
	case reflect.Map:
		if v.Len() == 0 {
			return
		}
		s[path] += v.Len()
		for it := v.MapRange(); it.Next(); {
			s.walk(it.Value(), path+"[]", seen)
			s.walk(it.Key(), path+"[]", seen)
		}
	case reflect.Slice:
		if v.Len() == 0 {
			return
		}
		s[path] += v.Len()
		if k := v.Type().Elem().Kind(); k == reflect.Uint8 || k == reflect.String {
			return
		}
		for i := range v.Len() {
			s.walk(v.Index(i), path+"[]", seen)
		}
	case reflect.Array:
		for i := range v.Len() {
			s.walk(v.Index(i), path+"[]", seen)
		}
	}
}

// sorted iterates over them by name.
func (s sizes) sorted() iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		for _, name := range slices.Sorted(maps.Keys(s)) {
			if !yield(name, s[name]) {
				return
			}
		}
	}
}

// largest shows the n largest, for people.
func (s sizes) largest(n int) string {
	names := slices.SortedFunc(maps.Keys(s), func(a, b string) int { return cmp.Or(cmp.Compare(s[b], s[a]), cmp.Compare(a, b)) })
	var out []string
	for _, name := range names[:min(n, len(names))] {
		out = append(out, fmt.Sprintf("%s %d", name, s[name]))
	}
	return strings.Join(out, ", ")
}

// checkSizes checks that cores with no jobs hold little: something for each host, device and owner, and for each job
// that is kept.
func (w *world) checkSizes() {
	devices := 0
	for _, h := range w.hosts {
		devices += len(h.cfg.Profile.GPUs)
	}
	for _, o := range w.owners {
		kept := len(o.rows)
		bound := 64 + 4*len(w.hosts) + 4*devices + 4*kept
		for name, n := range sizesOf(o.core).sorted() {
			if n > bound {
				w.fail("P3: %s has %d entries in %s with nothing to do, %d hosts and %d kept jobs", o.peer, n, name, len(w.hosts), kept)
			}
		}
	}
	for _, h := range w.hosts {
		if h.core == nil {
			continue
		}
		bound := 64 + 8*len(w.owners) + 8*len(h.cfg.Profile.GPUs)*(1+len(h.cfg.Profile.GPUs))
		for name, n := range sizesOf(h.core).sorted() {
			if n > bound {
				w.fail("P3: %s has %d entries in %s with nothing to do", h.peer, n, name)
			}
		}
	}
}
