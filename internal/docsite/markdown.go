package docsite

// Markdown rendered as HTML, without raw HTML, without images, and without links to files that are not served.

import (
	"bytes"
	"html/template"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// rendered is one guide.
type rendered struct {
	title    string
	html     template.HTML
	sections []Section
}

// render renders a guide. there reports whether a file is one of the guides.
func render(source []byte, there func(file string) bool) (rendered, error) {
	md := goldmark.New(goldmark.WithExtensions(extension.Table), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	doc := md.Parser().Parse(text.NewReader(source))
	if err := relink(doc, there); err != nil {
		return rendered{}, err
	}
	var b bytes.Buffer
	if err := md.Renderer().Render(&b, source, doc); err != nil {
		return rendered{}, err
	}
	r := rendered{html: template.HTML(b.String())} //nolint:gosec // the guides are part of the program, and raw HTML in them is left out
	for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
		if h, ok := n.(*ast.Heading); ok {
			s := Section{Title: textOf(h, source)}
			if id, ok := h.AttributeString("id"); ok {
				if anchor, ok := id.([]byte); ok {
					s.Anchor = string(anchor)
				}
			}
			if r.title == "" {
				r.title = s.Title
			}
			r.sections = append(r.sections, s)
			continue
		}
		if k := len(r.sections); k > 0 {
			r.sections[k-1].Text += textOf(n, source) + "\n"
		}
	}
	return r, nil
}

// relink makes links to other guides point to their pages. It replaces images, and links to files that are not guides, by
// their text. It removes raw HTML.
func relink(doc ast.Node, there func(file string) bool) error {
	var gone []ast.Node
	err := ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch x := n.(type) {
		case *ast.Image, *ast.HTMLBlock, *ast.RawHTML:
			gone = append(gone, n)
		case *ast.Link:
			to := string(x.Destination)
			file, anchor, _ := strings.Cut(to, "#")
			switch {
			case file == "" || strings.HasPrefix(to, "https://") || strings.HasPrefix(to, "http://"):
			case there(file):
				to = root + "/" + strings.TrimSuffix(file, ".md")
				if anchor != "" {
					to += "#" + anchor
				}
				x.Destination = []byte(to)
			default:
				gone = append(gone, x)
			}
		}
		return ast.WalkContinue, nil
	})
	for _, n := range gone {
		parent := n.Parent()
		for c := n.FirstChild(); c != nil; {
			next := c.NextSibling()
			parent.InsertBefore(parent, n, c)
			c = next
		}
		parent.RemoveChild(parent, n)
	}
	return err
}

// textOf returns the text of a node and its descendants.
func textOf(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // it returns no error
		if !entering {
			if n.Type() == ast.TypeBlock {
				b.WriteByte(' ')
			}
			return ast.WalkContinue, nil
		}
		switch x := n.(type) {
		case *ast.Text:
			b.Write(x.Segment.Value(source))
			if x.SoftLineBreak() || x.HardLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.Write(x.Value)
		case *ast.AutoLink:
			b.Write(x.Label(source))
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			for i := range n.Lines().Len() {
				line := n.Lines().At(i)
				b.Write(line.Value(source))
			}
		}
		return ast.WalkContinue, nil
	})
	return strings.Join(strings.Fields(b.String()), " ")
}
