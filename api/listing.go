package api

// Listings: their fields and their order, and the ETag by which a client learns that nothing has changed.

import (
	"encoding/json"
	"hash/maphash"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/api/view"
)

// ListingInput has the parameters of all listings. It is exported for the library that reads them by reflection.
type ListingInput struct {
	Sort    string   `query:"sort" maxLength:"64" doc:"The field by which the items are sorted, with a minus before it in descending order. A wrong one is an error that names all."`
	Fields  []string `query:"fields" maxItems:"64" doc:"Only these fields of each item. A wrong one is an error that names all."`
	Fresh   bool     `query:"fresh" doc:"Ask all nodes now. Otherwise the answer has what they have told within the last second."`
	NoCache string   `header:"Cache-Control" maxLength:"256" doc:"no-cache means the same as fresh."`
	Match   string   `header:"If-None-Match" maxLength:"1024" doc:"The ETag of an earlier answer. If nothing but the ages has changed, the answer is 304 without a body."`
}

// fresh reports whether the request wants all nodes to be asked now.
func (in *ListingInput) fresh() bool { return in.Fresh || strings.Contains(in.NoCache, "no-cache") }

// listingOutput is an answer with an encoded document.
type listingOutput struct {
	Status int
	Type   string `header:"Content-Type" hidden:"true"`
	ETag   string `header:"ETag" doc:"Stays the same while nothing but the ages changes."`
	Body   []byte
}

// orders are the fields by which items can be sorted.
type orders[T any] map[string]func(a, b *T) int

// of returns the order that a parameter names.
func (o orders[T]) of(text string) (func(a, b *T) int, error) {
	name, down := strings.CutPrefix(text, "-")
	compare, known := o[name]
	switch {
	case !known:
		return nil, bad("sort %s: no field to sort by; want one of %s", quote(text), strings.Join(sortedKeys(o), ", "))
	case down:
		return func(a, b *T) int { return compare(b, a) }, nil
	}
	return compare, nil
}

// fieldNames returns the fields of a document, as JSON names them.
func fieldNames(t reflect.Type) (all []string) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			all = append(all, fieldNames(f.Type)...)
		} else if name != "" && name != "-" {
			all = append(all, name)
		}
	}
	return all
}

// checkFields returns an error about a field that the document does not have.
func checkFields[T any](fields []string) error {
	known := fieldNames(reflect.TypeFor[T]())
	for _, f := range fields {
		if !slices.Contains(known, f) {
			slices.Sort(known)
			return bad("fields %s: no such field; want some of %s", quote(f), strings.Join(known, ", "))
		}
	}
	return nil
}

// itemText is an object of a listing as JSON, without the fields that item adds.
type itemText struct {
	text   []byte
	packed []byte // instead of text: packed by packer
	more   bool   // the requester may see the second packed text
	packer *view.Packer
}

// appendTo adds the document.
func (d *itemText) appendTo(b []byte) []byte {
	if d.packed == nil {
		return append(b, d.text...)
	}
	begin := len(b)
	if b = d.packer.Append(b, d.packed, d.more); len(b) == begin { // never happens: the view has packed it
		return append(b, "{}"...)
	}
	return b
}

// size returns about how many bytes the document takes.
func (d *itemText) size() int {
	if d.packed == nil {
		return len(d.text)
	}
	return view.Length(d.packed)
}

// sum returns a hash of the document. It is the same whether the document is packed or not.
func (d *itemText) sum() uint64 {
	if d.packed == nil {
		return view.Sum(d.text)
	}
	return view.SumOf(d.packed, d.more)
}

// item is one object of a listing.
type item struct {
	itemText

	age  time.Duration // since this daemon received it
	aged bool          // age is shown
	// ahead is by how many seconds the clock of the item's daemon is ahead. It is shown unless it is 0.
	ahead float64
	seen  time.Time // when the item's node was last heard; shown unless it is zero
}

// appendTo appends the item as JSON: with only these fields, or with all if fields is empty.
func (x *item) appendTo(b []byte, fields []string) []byte {
	head := make([]byte, 0, 64)
	if x.aged {
		head = append(head, `"age":`...)
		head = appendAge(head, x.age)
	}
	if x.ahead != 0 {
		if len(head) > 0 {
			head = append(head, ',')
		}
		head = strconv.AppendFloat(append(head, `"clock_ahead":`...), x.ahead, 'f', -1, 64)
	}
	if !x.seen.IsZero() {
		if len(head) > 0 {
			head = append(head, ',')
		}
		head = append(head, `"seen_at":"`...)
		head = append(x.seen.UTC().AppendFormat(head, time.RFC3339Nano), '"')
	}
	if len(fields) == 0 && len(head) > 0 {
		b = append(append(b, '{'), head...)
		begin := len(b)
		b = x.itemText.appendTo(b)
		if len(b)-begin <= len("{}") {
			return append(b[:begin], '}')
		}
		b[begin] = ',' // instead of the document's brace
		return b
	}
	if len(fields) == 0 {
		return x.itemText.appendTo(b)
	}
	return appendFields(b, fields, x.itemText.appendTo(nil), append(append([]byte{'{'}, head...), '}'))
}

// appendFields appends an object that has some fields of other objects.
func appendFields(b []byte, fields []string, objects ...[]byte) []byte {
	all := map[string]json.RawMessage{}
	for _, text := range objects {
		_ = json.Unmarshal(text, &all) // valid: we have encoded it
	}
	b = append(b, '{')
	first := true
	for _, f := range fields {
		v, there := all[f]
		if !there {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(append(append(b, '"'), f...), `":`...)
		b = append(b, v...)
		delete(all, f)
	}
	return append(b, '}')
}

// appendAge adds seconds with three digits.
func appendAge(b []byte, age time.Duration) []byte {
	return strconv.AppendFloat(b, age.Seconds(), 'f', 3, 64)
}

// listing is an answer before it is encoded.
type listing struct {
	schema  string
	items   []item
	partial []string
	next    string
	age     time.Duration
}

// etagSeed makes ETags of this process differ from those of other processes.
var etagSeed = maphash.MakeSeed()

// answer encodes the listing, or answers 304 if the client has the same one.
func (l *listing) answer(in *ListingInput) *listingOutput {
	var sum maphash.Hash
	sum.SetSeed(etagSeed)
	size := 256
	for i := range l.items {
		maphash.WriteComparable(&sum, l.items[i].sum())
		size += l.items[i].size() + 128 // 128 for its age and for the extra room that unpacking needs
	}
	slices.Sort(l.partial)
	l.partial = slices.Compact(l.partial)
	tail := textOf(struct {
		Partial []string `json:"partial"`
		Next    string   `json:"next,omitempty"`
	}{append([]string{}, l.partial...), l.next})
	_, _ = sum.Write(tail)
	return in.unlessSame(sum.Sum64(), func() []byte {
		b := make([]byte, 0, size)
		b = append(append(append(b, `{"schema":"`...), l.schema...), `","items":[`...)
		for i := range l.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = l.items[i].appendTo(b, in.Fields)
		}
		b = append(append(b, `],"age":`...), appendAge(nil, l.age)...)
		return append(append(append(b, ','), tail[1:]...), '\n')
	})
}

// unlessSame returns the body, or status 304 if the client has an answer with the same sum.
func (in *ListingInput) unlessSame(sum uint64, body func() []byte) *listingOutput {
	out := &listingOutput{Status: http.StatusOK, Type: "application/json", ETag: `W/"` + strconv.FormatUint(sum, 16) + `"`}
	for tag := range strings.SplitSeq(in.Match, ",") {
		if tag = strings.TrimSpace(tag); tag == out.ETag || "W/"+tag == out.ETag || tag == "*" {
			out.Status, out.Type = http.StatusNotModified, ""
			return out
		}
	}
	out.Body = body()
	return out
}

// listingOf adds the documentation of an answer of type T to an operation.
func listingOf[T any](rt *router, op huma.Operation) huma.Operation {
	schema := rt.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")
	op.Responses = map[string]*huma.Response{
		"200": {Description: http.StatusText(http.StatusOK), Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}},
		"304": {Description: "The client has the answer already: nothing but ages has changed since the one with the ETag of If-None-Match."},
	}
	return op
}
