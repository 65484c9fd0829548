package main

// The verb completion: shell scripts that ask the program itself for the verbs and flags that may come next.

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// askCompletion is the last word of a command line that asks for completions of the word before it. If the answer is
// empty, the shell completes file names.
const askCompletion = "--generate-bash-completion"

var completions = map[string]string{
	"bash": `_muster() {
  COMPREPLY=($("${COMP_WORDS[@]:0:COMP_CWORD+1}" ` + askCompletion + ` 2>/dev/null))
}
complete -o default -F _muster muster
`,
	"zsh": `#compdef muster
_muster() {
  local words_for_it="$("${(@)words[1,CURRENT]}" ` + askCompletion + ` 2>/dev/null)"
  if [[ -n $words_for_it ]]; then
    compadd -- ${(f)words_for_it}
  else
    _files
  fi
}
compdef _muster muster
`,
	"fish": `function __muster_complete
    set -l line (commandline -opc) (commandline -ct)
    $line ` + askCompletion + ` 2>/dev/null
end
complete -c muster -a '(__muster_complete)'
`,
}

func (v programVerbs) completionCommand() *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print a script that completes verbs and flags", ArgsUsage: "bash|zsh|fish",
		Action: func(c *cli.Context) error {
			script, ok := completions[c.Args().First()]
			if !ok || c.NArg() != 1 {
				return usagef("completion: want bash, zsh or fish")
			}
			_, err := fmt.Fprint(v.out, script)
			return err
		},
	}
}

// complete returns the completions of the last word: verbs, or flags if it begins with a dash.
func complete(app *cli.App, words []string) (fit []string) {
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	for _, w := range candidates(app, words[:len(words)-1], strings.HasPrefix(last, "-")) {
		if strings.HasPrefix(w, last) {
			fit = append(fit, w)
		}
	}
	return fit
}

// candidates returns the flags or verbs that may follow the words.
func candidates(app *cli.App, words []string, flagged bool) (all []string) {
	here := &cli.Command{Flags: app.Flags, Subcommands: app.Commands}
	value := false // the word is the value of the flag before it
	for _, w := range words {
		switch {
		case w == "=": // bash splits words here
			value = true
		case value:
			value = false
		case w == "--":
			return nil
		case isFlag(w):
			takes, _ := known(here.Flags, nameOf(w))
			value = takes && !strings.Contains(w, "=")
		case len(here.Subcommands) > 0:
			if here = find(here.Subcommands, w); here == nil {
				return nil
			}
		case here.Args:
			return nil // these words are a job's command
		}
	}
	switch {
	case value:
		return nil
	case flagged:
		return flagWords(here.Flags)
	}
	for _, c := range here.Subcommands {
		if !c.Hidden {
			all = append(all, c.Name)
		}
	}
	return all
}

func flagWords(flags []cli.Flag) []string {
	words := []string{"--help"}
	for _, f := range flags {
		if v, ok := f.(cli.VisibleFlag); ok && v.IsVisible() && f.Names()[0] != "help" {
			words = append(words, "--"+f.Names()[0])
		}
	}
	return words
}
