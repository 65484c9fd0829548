package main

// The verb completion: shell scripts that ask the program itself what may come next.

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// The last argument of a command line that asks for completions of the argument before it. With askDescribed a tab and a
// description follow each. Without output the shell completes file names if the exit code is 0, and nothing if it is 1.
const (
	askCompletion = "--generate-bash-completion"
	askDescribed  = "--generate-completion"
)

var completions = map[string]string{
	"bash": `_muster() {
  local found
  COMPREPLY=()
  found=$("${COMP_WORDS[@]:0:COMP_CWORD+1}" ` + askCompletion + ` 2>/dev/null) || { compopt +o default 2>/dev/null; return 0; }
  [ -z "$found" ] || mapfile -t COMPREPLY <<<"$found"
}
complete -o default -F _muster muster
`,
	"zsh": `#compdef muster
_muster() {
  local found line
  local -a all
  found="$("${(@)words[1,CURRENT]}" ` + askDescribed + ` 2>/dev/null)" || return 1
  for line in "${(@f)found}"; do
    [[ -z $line ]] || all+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
  done
  if (( $#all )); then
    _describe -V muster all
  else
    _files
  fi
}
if [[ $funcstack[1] == _muster ]]; then
  _muster "$@"
else
  compdef _muster muster
fi
`,
	"fish": `function __muster_complete
    set -l line (commandline -opc) (commandline -ct)
    set -l found ($line ` + askDescribed + ` 2>/dev/null)
    or return
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c muster -f -a '(__muster_complete)'
`,
}

// answerCompletion prints the completions of the last of the words.
func answerCompletion(ctx context.Context, app *cli.App, words []string, described bool) int {
	split := 0
	if !described {
		words, split = rejoined(words)
	}
	fit, files := complete(ctx, app, words)
	for _, s := range fit {
		s.word = s.word[min(split, len(s.word)):]
		if described {
			s.word += "\t" + s.about
		}
		fmt.Fprintln(app.Writer, s.word)
	}
	if len(fit) == 0 && !files {
		return exitFailed
	}
	return exitDone
}

// rejoined joins the words that bash has split at colons. split is the length of the last word up to its last colon;
// bash replaces only what follows.
func rejoined(words []string) (joined []string, split int) {
	for i, w := range words {
		n := len(joined)
		switch {
		case w == ":" && n > 0, n > 0 && i > 0 && words[i-1] == ":" && strings.HasSuffix(joined[n-1], ":"):
			joined[n-1] += w
			split = strings.LastIndexByte(joined[n-1], ':') + 1
		default:
			joined, split = append(joined, w), 0
		}
	}
	return joined, split
}

func (v programVerbs) completionCommand() *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print a script that completes verbs, flags, jobs and nodes", ArgsUsage: "bash|zsh|fish",
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
