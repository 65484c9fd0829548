package api

// Which schemas the OpenAPI document shows: those that it refers to. The others belong to routes between daemons.

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

const schemaRef = "#/components/schemas/"

// shownSchemas shows only some of the schemas. Requests are checked by all of them.
type shownSchemas struct {
	huma.Registry

	shown map[string]*huma.Schema
}

// MarshalJSON implements json.Marshaler.
func (s *shownSchemas) MarshalJSON() ([]byte, error) { return json.Marshal(s.shown) }

// hideUnused keeps the document from showing schemas to which no operation refers.
func hideUnused(doc *huma.OpenAPI) {
	all, shown := doc.Components.Schemas.Map(), map[string]*huma.Schema{}
	var follow func(v any)
	follow = func(v any) {
		for name := range refsIn(v) {
			if shown[name] == nil && all[name] != nil {
				shown[name] = all[name]
				follow(all[name])
			}
		}
	}
	follow(doc.Paths)
	follow(doc.Components.Responses)
	doc.Components.Schemas = &shownSchemas{doc.Components.Schemas, shown}
}

// refsIn returns the names of the schemas to which a part of the document refers.
func refsIn(v any) map[string]bool {
	text, err := json.Marshal(v)
	if err != nil {
		return nil // the whole document could not be sent either
	}
	names := map[string]bool{}
	for part := range strings.SplitSeq(string(text), `"`+schemaRef) {
		name, _, _ := strings.Cut(part, `"`)
		names[strings.Clone(name)] = true // a part of the text would keep all of it in memory
	}
	maps.DeleteFunc(names, func(name string, _ bool) bool { return name == "" || strings.ContainsAny(name, "{}") })
	return names
}

// shown returns the schemas of a document.
func shown(doc *huma.OpenAPI) map[string]*huma.Schema {
	if s, ok := doc.Components.Schemas.(*shownSchemas); ok {
		return s.shown
	}
	return doc.Components.Schemas.Map()
}
