package main

// The config file of a daemon: YAML with one entry for each setting, named like its flag.

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/job/yamldoc"
)

// configLines is the content of a config file.
type configLines struct {
	path     string // empty: there is no file
	settings map[string]fileSetting
}

// fileSetting is one setting in the file.
type fileSetting struct {
	values []string
	list   bool // written as a list or a map
	line   int
	place  string // FILE:LINE
}

// unknown returns an error for the first entry that is not a setting, or that is a list although the setting has one
// value.
func (f configLines) unknown(all []setting) error {
	lines := slices.SortedFunc(maps.Keys(f.settings), func(a, b string) int { return cmp.Compare(f.settings[a].line, f.settings[b].line) })
	for _, name := range lines {
		i := slices.IndexFunc(all, func(s setting) bool { return s.name == name })
		switch {
		case i < 0:
			return usagef("config file %s: no such setting: %.60q; `muster config show` lists them", f.settings[name].place, name)
		case f.settings[name].list && !all[i].many:
			return usagef("config file %s: %s: want one value, not a list", f.settings[name].place, name)
		}
	}
	return nil
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

// readConfigFile reads the settings in a file. If asked is false, the file may be missing.
func readConfigFile(path string, asked bool) (configLines, error) {
	text, err := readFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !asked:
		return configLines{}, nil
	case err != nil:
		return configLines{}, usagef("config file %s: %w", path, err)
	case len(text) > job.MaxSpecBytes:
		return configLines{}, usagef("config file %s: larger than %s", path, job.Size(job.MaxSpecBytes))
	}
	settings, err := parseConfig(path, text)
	if err != nil {
		return configLines{}, usagef("config file %w", err)
	}
	return configLines{path, settings}, nil
}

// parseConfig parses "setting: value", "setting: [values]" and, for labels, "setting: {k: v}". Its errors begin with
// the position.
func parseConfig(path string, text []byte) (map[string]fileSetting, error) {
	doc, err := yamldoc.Parse(text, yamldoc.Usual)
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
			at := fileSetting{line: line(field.Key()), list: isList(field.Value())}
			at.place = fmt.Sprintf("%s:%d", path, at.line)
			read := valuesOf
			if slices.Contains(treeSettings, nameOfField(field)) {
				read = limitsOf
			}
			if at.values, err = read(field.Value()); err != nil {
				return nil, fmt.Errorf("%s: %w", at.place, err)
			}
			settings[nameOfField(field)] = at
		}
	}
	return settings, nil
}

func line(n ast.Node) int { return n.GetToken().Position.Line }

func isList(n ast.Node) bool {
	_, isMap := n.(ast.MapNode)
	return isMap || n.Type() == ast.SequenceType
}

const (
	limitsSetting = "limits"
	sharesSetting = "shares"
)

// treeSettings are the settings whose value is a tree.
var treeSettings = []string{limitsSetting, sharesSetting}

// limitsOf returns the leaves of limits, each with its path: per_user.gpus=4.
func limitsOf(n ast.Node) (values []string, err error) {
	m, ok := n.(ast.MapNode)
	if !ok {
		return valuesOf(n)
	}
	for field := m.MapRange(); field.Next(); {
		text, leaf := word(field.Value())
		if leaf {
			values = append(values, nameOfField(field)+"="+text)
			continue
		}
		below, err := limitsOf(field.Value())
		if err != nil {
			return nil, err
		}
		for _, v := range below {
			values = append(values, nameOfField(field)+"."+v)
		}
	}
	return values, nil
}

// valuesOf returns the values of a setting; an empty list means the default.
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

// word returns a scalar as it was written, without quotes.
func word(n ast.Node) (text string, ok bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	}
	return "", false
}
