package docsite

// The search finds the sections that contain all words. Sections with the words in their titles come first.

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	maxQuery   = 200 // bytes of a search
	maxWords   = 8
	maxResults = 50
	excerpt    = 200 // bytes of the text of a result
)

// Section is a part of a page that a search can find.
type Section struct {
	Title  string
	Anchor string // its id on the page
	Text   string
}

// section is a Section, with texts that make the search quick.
type section struct {
	Section

	path, page  string
	title, text string // in lower case
}

func sectionOf(path, page string, s Section) section {
	return section{Section: s, path: path, page: page, title: strings.ToLower(s.Title), text: strings.ToLower(s.Text)}
}

// found is a section that contains all words of a search.
type found struct {
	*section

	score int
}

// find returns the best sections for the words of a query.
func (g *Guide) find(query string) (out []found) {
	words := strings.Fields(strings.ToLower(query))
	words = words[:min(len(words), maxWords)]
	if len(words) == 0 {
		return nil
	}
	for i := range g.sections {
		s, score := &g.sections[i], 0
		for _, w := range words {
			n := min(strings.Count(s.text, w), 9) + 20*min(strings.Count(s.title, w), 1)
			if n == 0 {
				score = 0
				break
			}
			score += n
		}
		if score > 0 {
			out = append(out, found{s, score})
		}
	}
	slices.SortStableFunc(out, func(a, b found) int { return b.score - a.score })
	return out[:min(len(out), maxResults)]
}

// results returns the page with the results of a search.
func (g *Guide) results(query string) template.HTML {
	var b strings.Builder
	all := g.find(query)
	esc := template.HTMLEscapeString
	switch {
	case strings.TrimSpace(query) == "":
		b.WriteString("<h1>Search</h1><p>Words are searched for in the titles and texts of all pages.</p>")
	case len(all) == 0:
		fmt.Fprintf(&b, "<h1>Nothing found</h1><p>No section has all of these words: %s</p>", esc(query))
	default:
		fmt.Fprintf(&b, "<h1>%s</h1>", esc(query))
	}
	for _, f := range all {
		to := f.path
		if f.Anchor != "" {
			to += "#" + f.Anchor
		}
		fmt.Fprintf(&b, "<h3><a href=\"%s\">%s</a> <small class=\"dim\">%s</small></h3><p>%s</p>\n", esc(to), esc(f.Title), esc(f.page), esc(f.around(query)))
	}
	return template.HTML(b.String()) //nolint:gosec // all texts in it are escaped above
}

// around returns the text around the first word of a query.
func (s *section) around(query string) string {
	word := strings.Fields(strings.ToLower(query))[0]
	at := max(0, strings.Index(s.text, word))
	if len(s.text) != len(s.Text) { // in some scripts lower case has another length, so at does not fit Text
		at = 0
	}
	from := max(0, at-excerpt/3)
	to := min(len(s.Text), from+excerpt)
	for from > 0 && !utf8.RuneStart(s.Text[from]) {
		from--
	}
	for to < len(s.Text) && !utf8.RuneStart(s.Text[to]) {
		to++
	}
	out := s.Text[from:to]
	if from > 0 {
		out = "… " + out
	}
	if to < len(s.Text) {
		out += " …"
	}
	return out
}
