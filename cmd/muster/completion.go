package main

// The verb completion: scripts that make a shell complete verbs and flags by
// asking the program itself.

import (
	"fmt"

	"github.com/urfave/cli/v2"
)

var completions = map[string]string{
	"bash": `_muster() {
  local cur=${COMP_WORDS[COMP_CWORD]}
  COMPREPLY=($(compgen -W "$("${COMP_WORDS[@]:0:$COMP_CWORD}" --generate-bash-completion 2>/dev/null)" -- "$cur"))
}
complete -o default -F _muster muster
`,
	"zsh": `#compdef muster
_muster() {
  local -a opts
  opts=("${(@f)$("${words[@]:0:#words[@]-1}" --generate-bash-completion 2>/dev/null)}")
  _describe 'muster' opts || _files
}
compdef _muster muster
`,
	"fish": `function __muster_complete
    set -l words (commandline -opc)
    $words --generate-bash-completion 2>/dev/null
end
complete -c muster -a '(__muster_complete)'
`,
}

func (e env) completionCommand() *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print a completion script", ArgsUsage: "bash|zsh|fish",
		Action: func(c *cli.Context) error {
			script, ok := completions[c.Args().First()]
			if !ok || c.NArg() != 1 {
				return usagef("completion: want bash, zsh or fish")
			}
			fmt.Fprint(e.out, script)
			return nil
		},
	}
}
