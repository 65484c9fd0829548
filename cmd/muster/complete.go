package main

// What may come next on a command line: verbs, flags, values of flags, jobs and nodes.

import (
	"context"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// suggestion is a word that may come next, and what it is.
type suggestion struct{ word, about string }

// place is where the next word of a command line stands.
type place struct {
	words  []string // before it
	verbs  []*cli.Command
	verb   *cli.Command // nil: it is itself a verb
	path   string       // of the verb
	flags  []cli.Flag
	flag   string // the word is the value of this flag
	typed  string // what there is of that value, after its last comma
	plain  int    // arguments before it
	closed bool   // it belongs to the command line of a job, which muster does not complete
}

// complete returns the words that may stand in the place of the last one. files reports whether it may be the name of a
// file as well.
func complete(ctx context.Context, app *cli.App, words []string) (fit []suggestion, files bool) {
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	if last == "=" { // bash splits words here
		words, last = append(slices.Clip(words), ""), ""
	}
	at := placeAfter(app, words[:len(words)-1])
	kept := "" // the part of the last word that stays
	if name, value, joined := strings.Cut(last, "="); joined && at.flag == "" && isFlag(last) {
		at.flag, kept, last = at.name(name), name+"=", value
	}
	var all []suggestion
	switch {
	case at.closed:
		return nil, true
	case at.flag != "":
		if i := strings.LastIndexByte(last, ','); i >= 0 {
			kept, last = kept+last[:i+1], last[i+1:]
		}
		at.typed = last
		all, files = at.values(ctx)
	case strings.HasPrefix(last, "-"):
		all, files = flagWords(at.flags), true
	default:
		all, files = at.arguments(ctx)
	}
	for _, s := range all {
		if strings.HasPrefix(s.word, last) {
			fit = append(fit, suggestion{kept + s.word, s.about})
		}
	}
	return fit, files
}

// placeAfter returns the place after the words.
func placeAfter(app *cli.App, words []string) place {
	at := place{words: words, flags: app.Flags, verbs: app.Commands}
	for _, w := range words {
		switch {
		case w == "=" && at.flag == "": // bash splits words here
			at.closed = true
		case w == "=":
		case at.flag != "":
			at.flag = ""
		case w == "--":
			at.closed = true
		case isFlag(w):
			if takes, _ := known(at.flags, nameOf(w)); takes && !strings.Contains(w, "=") {
				at.flag = at.name(w)
			}
		case len(at.verbs) > 0:
			verb := find(at.verbs, w)
			if verb == nil {
				at.closed = true
				return at
			}
			at.verb, at.verbs, at.flags, at.path = verb, verb.Subcommands, verb.Flags, strings.TrimSpace(at.path+" "+verb.Name)
		default:
			at.plain++
			at.closed = at.closed || at.verb.Args // these words are a job's command
		}
		if at.closed {
			return at
		}
	}
	return at
}

// name returns the long name of a flag.
func (at place) name(word string) string {
	for _, f := range at.flags {
		for _, n := range f.Names() {
			if n == nameOf(word) {
				return f.Names()[0]
			}
		}
	}
	return nameOf(word)
}

func flagWords(flags []cli.Flag) []suggestion {
	words := []suggestion{{"--help", "show help"}}
	for _, f := range flags {
		v, ok := f.(cli.VisibleFlag)
		if !ok || !v.IsVisible() || f.Names()[0] == "help" {
			continue
		}
		about := ""
		if doc, ok := f.(cli.DocGenerationFlag); ok {
			about = strings.ReplaceAll(doc.GetUsage(), "`", "")
		}
		words = append(words, suggestion{"--" + f.Names()[0], about})
	}
	return words
}

func verbWords(verbs []*cli.Command) (words []suggestion) {
	for _, c := range verbs {
		if !c.Hidden {
			words = append(words, suggestion{c.Name, c.Usage})
		}
	}
	return words
}

func plainWords(words ...string) (all []suggestion) {
	for _, w := range words {
		all = append(all, suggestion{w, ""})
	}
	return all
}
