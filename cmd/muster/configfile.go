package main

// The config file of a daemon: YAML with one line for each setting, by the name
// of its flag.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/musterhq/muster/job"
)

// fileSetting is what the file says about one setting.
type fileSetting struct {
	values []string
	place  string // FILE:LINE
}

func defaultConfigFile() string {
	if os.Getuid() == 0 {
		return "/etc/muster/config.yaml"
	}
	if dir, err := os.UserConfigDir(); err == nil {
		return filepath.Join(dir, "muster", "config.yaml")
	}
	return "config.yaml"
}

// readConfigFile reads the settings in a file, which may be missing unless it
// was asked for.
func readConfigFile(path string, asked bool) (map[string]fileSetting, error) {
	text, err := readFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !asked:
		return nil, nil
	case err != nil:
		return nil, usagef("config file %s: %w", path, err)
	case len(text) > job.MaxSpecBytes:
		return nil, usagef("config file %s: larger than %s", path, job.Size(job.MaxSpecBytes))
	}
	settings, err := parseConfig(path, text)
	if err != nil {
		return nil, usagef("config file %w", err)
	}
	return settings, nil
}

// parseConfig reads "setting: value", "setting: [values]" and, for labels,
// "setting: {k: v}". Its errors begin with the place.
func parseConfig(path string, text []byte) (map[string]fileSetting, error) {
	doc, err := parser.ParseBytes(text, 0)
	var at yaml.Error
	if errors.As(err, &at) && at.GetToken() != nil {
		return nil, fmt.Errorf("%s:%d: %s", path, at.GetToken().Position.Line, at.GetMessage())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	settings := map[string]fileSetting{}
	for _, d := range doc.Docs {
		if d.Body == nil || d.Body.Type() == ast.CommentType {
			continue
		}
		fields, ok := d.Body.(ast.MapNode)
		if !ok {
			return nil, fmt.Errorf("%s:%d: want lines such as `name: node1`", path, line(d.Body))
		}
		for field := fields.MapRange(); field.Next(); {
			place := fmt.Sprintf("%s:%d", path, line(field.Key()))
			values, err := valuesOf(field.Value())
			if err != nil {
				return nil, fmt.Errorf("%s: %w", place, err)
			}
			settings[nameOfField(field)] = fileSetting{values, place}
		}
	}
	return settings, nil
}

func line(n ast.Node) int { return n.GetToken().Position.Line }

// valuesOf lists the values of a setting; none stand for the default.
func valuesOf(n ast.Node) (values []string, err error) {
	switch n := n.(type) {
	case *ast.NullNode:
	case *ast.SequenceNode:
		for _, v := range n.Values {
			text, ok := word(v)
			if !ok {
				return nil, errors.New("want a list of words")
			}
			values = append(values, text)
		}
	case ast.MapNode:
		for field := n.MapRange(); field.Next(); {
			text, ok := word(field.Value())
			if !ok {
				return nil, errors.New("want K: V")
			}
			values = append(values, nameOfField(field)+"="+text)
		}
	default:
		text, ok := word(n)
		if !ok {
			return nil, errors.New("want a word or a list of words")
		}
		values = []string{text}
	}
	return values, nil
}

func nameOfField(f *ast.MapNodeIter) string {
	name, ok := word(f.Key())
	if !ok {
		name = f.Key().String()
	}
	return name
}

// word is a plain value as it was written, without quotes.
func word(n ast.Node) (text string, ok bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	}
	return "", false
}
