// Package yamldoc parses YAML within bounds. The library's memory grows with the square of the depth, and without a
// bound for aliases of aliases: some KB of text would take all memory of a host.
package yamldoc

import (
	"fmt"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of a text. Files that people write have some ten levels and few aliases.
const (
	maxDepth   = 64   // nested lists, mappings and properties
	maxAliases = 1000 // in one text
	// maxDocuments bounds the documents of a text: the library copies all that follow one.
	maxDocuments = 1100
	maxNodes     = 100_000 // for which all aliases together stand
)

// Bounds are the bounds that differ between kinds of text.
type Bounds struct {
	Tokens int // words and signs; the library allocates some 600 bytes for each
	Keys   int // of one mapping in block style; the library's time grows with their square
}

// Usual are the bounds of files that people write. A list of 1 MiB of short lines has fewer tokens.
var Usual = Bounds{Tokens: 600_000, Keys: 4096}

// Error is a text that exceeds a bound. It is a yaml.Error.
type Error struct {
	at      *token.Token
	message string
}

var _ yaml.Error = (*Error)(nil)

// Error returns the message with its position.
func (e *Error) Error() string { return e.FormatError(false, false) }

// GetToken returns where the bound is exceeded.
func (e *Error) GetToken() *token.Token { return e.at }

// GetMessage returns the message without its position.
func (e *Error) GetMessage() string { return e.message }

// FormatError returns the message with its position, in one line.
func (e *Error) FormatError(_, _ bool) string {
	return fmt.Sprintf("[%d:%d] %s", e.at.Position.Line, e.at.Position.Column, e.message)
}

// Parse parses the documents of a text within bounds. The library panics on some malformed texts; Parse returns an
// error for them. A text that exceeds a bound is an *Error.
func Parse(text []byte, within Bounds) (file *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("not valid YAML: %v", r)
		}
	}()
	tokens := lexer.Tokenize(string(text))
	if err := check(tokens, within); err != nil {
		return nil, err
	}
	if file, err = parser.Parse(tokens, 0); err != nil {
		return nil, err
	}
	for _, doc := range file.Docs {
		if err := checkAliases(doc); err != nil {
			return nil, err
		}
	}
	return file, nil
}

// check returns an error if the tokens exceed a bound, before the parser sees them.
func check(tokens token.Tokens, within Bounds) error {
	if len(tokens) > within.Tokens {
		return &Error{tokens[within.Tokens], fmt.Sprintf("too many values: over %d words and signs", within.Tokens)}
	}
	if err := checkCounts(tokens); err != nil {
		return err
	}
	var blocks []block
	flow, properties := 0, 0
	for _, t := range tokens {
		before := properties
		properties = 0
		switch t.Type { //nolint:exhaustive // other tokens open nothing
		case token.SequenceStartType, token.MappingStartType:
			flow++
			properties = before // they are of the list
		case token.SequenceEndType, token.MappingEndType:
			flow = max(flow-1, 0)
		case token.AnchorType, token.TagType:
			properties = before + 1
		case token.StringType:
			properties = before // also the name of an anchor
		case token.SequenceEntryType, token.MappingKeyType:
			if flow == 0 {
				blocks = enter(blocks, block{column: t.Position.Column, kind: t.Type})
			}
		case token.MappingValueType:
			if flow == 0 && t.Prev != nil {
				blocks = enter(blocks, block{column: t.Prev.Position.Column, kind: t.Type})
			}
		case token.DocumentHeaderType, token.DocumentEndType:
			blocks = blocks[:0]
		}
		if n := len(blocks); n > 0 && blocks[n-1].n > within.Keys && blocks[n-1].kind != token.SequenceEntryType {
			return &Error{t, fmt.Sprintf("more than %d keys in one mapping", within.Keys)}
		}
		if len(blocks)+flow+properties > maxDepth {
			return &Error{t, fmt.Sprintf("more than %d values in each other", maxDepth)}
		}
	}
	return nil
}

// checkCounts returns an error if there are too many aliases or documents.
func checkCounts(tokens token.Tokens) error {
	n := map[token.Type]int{}
	for _, t := range tokens {
		switch n[t.Type]++; {
		case n[token.AliasType] > maxAliases:
			return &Error{t, fmt.Sprintf("more than %d aliases", maxAliases)}
		case n[token.DocumentHeaderType] > maxDocuments:
			return &Error{t, fmt.Sprintf("more than %d documents", maxDocuments)}
		}
	}
	return nil
}

// block is a list or mapping that is delimited by its indentation.
type block struct {
	column int
	kind   token.Type
	n      int // its entries so far
}

func (b block) is(c block) bool { return b.column == c.column && b.kind == c.kind }

// enter returns the open blocks at a token of a block. A list may begin in the column of the mapping that it is in.
func enter(open []block, at block) []block {
	for len(open) > 0 {
		last := open[len(open)-1]
		if last.column < at.column || last.is(at) || last.column == at.column && at.kind == token.SequenceEntryType {
			break
		}
		open = open[:len(open)-1]
	}
	if len(open) == 0 || !open[len(open)-1].is(at) {
		open = append(open, at)
	}
	open[len(open)-1].n++
	return open
}

// checkAliases returns an error if the aliases of a document stand for too many values.
func checkAliases(doc *ast.DocumentNode) error {
	c := counter{anchors: map[string]int{}}
	c.count(doc.Body)
	if c.stood > maxNodes {
		return &Error{c.at, fmt.Sprintf("the aliases stand for more than %d values", maxNodes)}
	}
	return nil
}

// counter counts values.
type counter struct {
	anchors map[string]int // the number of values that each stands for
	stood   int            // values for which aliases stand; it stops beyond maxNodes
	at      *token.Token   // the alias that exceeded it
}

// count returns how many values a node is, with those that its aliases stand for.
func (c *counter) count(n ast.Node) int {
	switch n := n.(type) {
	case nil:
		return 0
	case *ast.MappingNode:
		sum := 1
		for _, v := range n.Values {
			sum += c.count(v)
		}
		return sum
	case *ast.MappingValueNode:
		return c.count(n.Key) + c.count(n.Value)
	case *ast.MappingKeyNode:
		return c.count(n.Value)
	case *ast.SequenceNode:
		sum := 1
		for _, v := range n.Values {
			sum += c.count(v)
		}
		return sum
	case *ast.TagNode:
		return 1 + c.count(n.Value)
	case *ast.AnchorNode:
		sum := c.count(n.Value)
		c.anchors[nameOf(n.Name)] = sum
		return sum
	case *ast.AliasNode:
		sum := min(1+c.anchors[nameOf(n.Value)], maxNodes+1)
		if c.stood <= maxNodes {
			c.stood, c.at = c.stood+sum, n.GetToken()
		}
		return sum
	}
	return 1
}

func nameOf(n ast.Node) string {
	if n == nil || n.GetToken() == nil {
		return ""
	}
	return n.GetToken().Value
}
