package worker

import (
	"container/list"
	"reflect"
	"strings"
)

// Access to internals for tests.

// Bounds that tests reach.
const (
	MaxQueued   = maxQueued
	MaxAge      = maxAge
	MaxRefusals = maxRefusals
)

// Refusals returns how many refusals for quota a core keeps, including those that it has to tell a scheduler of.
func Refusals(c *Core) int {
	r := &c.account.quotas.refusals
	n := r.list.Len()
	for _, users := range r.pending {
		n += len(users)
	}
	return n
}

// Sizes returns the lengths of all slices and maps in a core, by the path of their fields. Lengths with the same path
// are added up.
func Sizes(c *Core) map[string]int {
	out := map[string]int{}
	seen := map[uintptr]bool{}
	sizes(reflect.ValueOf(c), "", seen, out)
	return out
}

func sizes(v reflect.Value, at string, seen map[uintptr]bool, out map[string]int) {
	kind := v.Kind()
	if (kind == reflect.Pointer || kind == reflect.Interface) && v.IsNil() {
		return
	}
	if kind == reflect.Pointer {
		if seen[v.Pointer()] {
			return
		}
		seen[v.Pointer()] = true
		if v.Type() == reflect.TypeFor[*list.List]() {
			out[at] += int(v.Elem().FieldByName("len").Int())
			return
		}
	}
	if kind == reflect.Pointer || kind == reflect.Interface {
		sizes(v.Elem(), at, seen, out)
	}
	if kind == reflect.Struct {
		for i := range v.NumField() {
			sizes(v.Field(i), strings.TrimPrefix(at+"."+v.Type().Field(i).Name, "."), seen, out)
		}
	}
	if kind == reflect.Map {
		out[at] += v.Len()
		for it := v.MapRange(); it.Next(); {
			sizes(it.Value(), at+"[]", seen, out)
		}
	}
	if kind == reflect.Slice {
		out[at] += v.Len()
		for i := range v.Len() {
			sizes(v.Index(i), at+"[]", seen, out)
		}
	}
}
