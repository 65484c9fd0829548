package api

// Which schemas the OpenAPI document shows: those that it refers to. The others belong to routes between daemons.

import (
	"encoding/json"
	"maps"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
)

const schemaRef = "#/components/schemas/"

// shownSchemas shows only some of the schemas. Requests are checked by all of them.
type shownSchemas struct {
	huma.Registry

	// shown is computed when the document is first requested, because it costs more memory than the rest of a daemon's start.
	shown func() map[string]*huma.Schema
}

// MarshalJSON implements json.Marshaler.
func (s *shownSchemas) MarshalJSON() ([]byte, error) { return json.Marshal(s.shown()) }

// hideUnused keeps the document from showing schemas to which no operation refers.
func hideUnused(doc *huma.OpenAPI) {
	all := doc.Components.Schemas.Map()
	doc.Components.Schemas = &shownSchemas{doc.Components.Schemas, sync.OnceValue(func() map[string]*huma.Schema { return usedIn(doc, all) })}
}

// usedIn returns the schemas to which operations refer, directly or indirectly.
func usedIn(doc *huma.OpenAPI, all map[string]*huma.Schema) map[string]*huma.Schema {
	used := map[string]*huma.Schema{}
	var follow func(v any)
	follow = func(v any) {
		for name := range refsIn(v) {
			if used[name] == nil && all[name] != nil {
				used[name] = all[name]
				follow(all[name])
			}
		}
	}
	follow(doc.Paths)
	follow(doc.Components.Responses)
	return used
}

// refsIn returns the names of the schemas to which a part of the document refers.
func refsIn(v any) map[string]bool {
	text, err := json.Marshal(v)
	if err != nil {
		return nil // never happens: else the document itself could not be encoded
	}
	names := map[string]bool{}
	for part := range strings.SplitSeq(string(text), `"`+schemaRef) {
		name, _, _ := strings.Cut(part, `"`)
		names[strings.Clone(name)] = true // a substring would keep the whole text in memory
	}
	maps.DeleteFunc(names, func(name string, _ bool) bool { return name == "" || strings.ContainsAny(name, "{}") })
	return names
}

// shown returns the schemas of a document.
func shown(doc *huma.OpenAPI) map[string]*huma.Schema {
	if s, ok := doc.Components.Schemas.(*shownSchemas); ok {
		return s.shown()
	}
	return doc.Components.Schemas.Map()
}
