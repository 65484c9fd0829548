package main

// Flags may be written before or after a verb's arguments, in all the usual forms. The library accepts only flags
// before the arguments, and only some of the forms.

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// arrange rewrites a command line for the library: each flag is one word with its value, flags come before the
// arguments, and flags that were given before the verb come after it if the verb has them too.
//
// A verb whose argument is itself a command line (Args is set) keeps everything from its first argument on, including
// a preceding "--".
func arrange(app *cli.App, args []string) ([]string, error) {
	if len(args) == 0 {
		return args, nil
	}
	var early, path []string
	rest := args[1:]
	for len(rest) > 0 && isFlag(rest[0]) {
		taken, next, err := takeFlag(app.Name, app.Flags, rest)
		if err != nil {
			return nil, err
		}
		early, rest = append(early, taken...), next
	}
	if len(rest) == 0 || slices.ContainsFunc(early, asksHelp) {
		return slices.Concat(args[:1], early), nil
	}
	var verb *cli.Command
	for commands := app.Commands; len(commands) > 0 && len(rest) > 0 && !isFlag(rest[0]); commands = verb.Subcommands {
		path, rest = append(path, rest[0]), rest[1:]
		if verb = find(commands, path[len(path)-1]); verb == nil {
			return nil, noVerb(path)
		}
	}
	if verb.SkipFlagParsing {
		return slices.Concat(args[:1], path, rest), nil
	}
	flags, plain, err := sortOut(app.Name+" "+strings.Join(path, " "), verb, rest)
	if err != nil {
		return nil, err
	}
	var both, global []string
	for _, f := range early {
		if _, ok := known(verb.Flags, nameOf(f)); ok {
			both = append(both, f)
		} else {
			global = append(global, f)
		}
	}
	out := slices.Concat(args[:1], global, path, both, flags)
	if slices.ContainsFunc(flags, asksHelp) {
		return append(slices.Concat(args[:1], path), "--help"), nil
	}
	if len(plain) > 0 {
		out = append(append(out, "--"), plain...)
	}
	return out, nil
}

// sortOut separates the words after a verb into flags and arguments.
func sortOut(path string, verb *cli.Command, words []string) (flags, plain []string, err error) {
	for len(words) > 0 {
		switch {
		case verb.Args && (words[0] == "--" || !isFlag(words[0])):
			return flags, words, nil
		case words[0] == "--":
			return flags, append(plain, words[1:]...), nil
		case isFlag(words[0]):
			var taken []string
			if taken, words, err = takeFlag(path, verb.Flags, words); err != nil {
				return nil, nil, err
			}
			flags = append(flags, taken...)
		default:
			plain, words = append(plain, words[0]), words[1:]
		}
	}
	return flags, plain, nil
}

// takeFlag takes the flag at the front of words. It returns the flag as one word with its value, or several short
// flags that were written as one word, such as -fn5, as several words.
func takeFlag(path string, flags []cli.Flag, words []string) (taken, rest []string, err error) {
	word, rest := words[0], words[1:]
	if asksHelp(word) {
		return []string{"--help"}, rest, nil
	}
	value, ok := known(flags, nameOf(word))
	if !ok {
		taken = cluster(flags, word)
		if taken == nil {
			return nil, nil, noFlag(path, flags, word)
		}
		word, taken = taken[len(taken)-1], taken[:len(taken)-1]
		value, _ = known(flags, nameOf(word))
	}
	switch {
	case !value || strings.Contains(word, "="):
		return append(taken, word), rest, nil
	case len(rest) == 0 || rest[0] == "--":
		return nil, nil, noValue(path, flags, word)
	}
	return append(taken, word+"="+rest[0]), rest[1:], nil
}

// cluster splits short flags that were written as one word: -c4, -fn5. It returns nil for any other word.
func cluster(flags []cli.Flag, word string) (parts []string) {
	letters := strings.TrimPrefix(word, "-")
	if strings.HasPrefix(letters, "-") {
		return nil
	}
	for letters != "" {
		value, ok := known(flags, letters[:1])
		switch {
		case !ok:
			return nil
		case value && len(letters) > 1:
			return append(parts, "-"+letters[:1]+"="+letters[1:])
		}
		parts, letters = append(parts, "-"+letters[:1]), letters[1:]
	}
	return parts
}

// isFlag reports whether a word is a flag or "--"; "-" is an argument.
func isFlag(word string) bool { return len(word) > 1 && word[0] == '-' }

func asksHelp(word string) bool { return word == "--help" || word == "-help" || word == "-h" }

// nameOf returns the name of a flag without dashes and value.
func nameOf(word string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(word, "-"), "-"), "=")
	return name
}

// known reports whether there is a flag of that name, and whether it takes a value.
func known(flags []cli.Flag, name string) (takesValue, ok bool) {
	for _, f := range flags {
		if slices.Contains(f.Names(), name) {
			doc, ok := f.(cli.DocGenerationFlag)
			return ok && doc.TakesValue(), true
		}
	}
	return false, false
}

func find(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}
