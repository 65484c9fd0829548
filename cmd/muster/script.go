package main

// Scripts, and the directives in their leading comments: #MUSTER with our flags, and #SBATCH lines with a meaning
// here.

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/job"
)

// maxScript bounds a script. Its JSON form is longer and must fit in a job file.
const maxScript = job.MaxSpecBytes / 2

// scriptText returns the text of a script if the first argument names one: standard input (-), or a file that begins
// with #!. Any other argument is a command on the node, and the text is empty. It is an error if it cannot be a command
// there.
func (r specReader) scriptText(c *cli.Context, args []string) (string, error) {
	arg := args[0]
	var text []byte
	if arg == "-" {
		var err error
		if text, err = r.readInput(c.Context); err != nil {
			return "", fmt.Errorf("script on standard input: %w", err)
		}
	} else {
		info, err := os.Stat(arg)
		if err != nil || info.Mode()&(os.ModeDir|os.ModeDevice) != 0 {
			return "", notThere(c, arg, err)
		}
		if text, err = readFile(arg); err != nil || !bytes.HasPrefix(text, []byte("#!")) {
			return "", notSent(c, args, info)
		}
	}
	switch {
	case len(text) > maxScript:
		return "", usagef("script %s: larger than %s", arg, job.Size(maxScript))
	case len(bytes.TrimSpace(text)) == 0:
		return "", usagef("script %s: it is empty", arg)
	case bytes.IndexByte(text, 0) >= 0:
		return "", usagef("script %s: not a text file", arg)
	case bytes.HasSuffix(bytes.SplitN(text, []byte("\n"), 2)[0], []byte("\r")):
		return "", usagef("script %s: its lines end with CR LF, so the interpreter would not be found; convert it with dos2unix", arg)
	}
	return string(text), nil
}

// interpreters are the programs that run files with these endings.
var interpreters = map[string]string{
	".py": "python3", ".sh": "bash", ".bash": "bash", ".sbatch": "bash", ".slurm": "bash", ".job": "bash", ".r": "Rscript", ".pl": "perl", ".jl": "julia", ".rb": "ruby", ".js": "node",
}

// elsewhere reports whether the node looks for the program in another place than the scratch directory and PATH.
func elsewhere(c *cli.Context) bool {
	return c.IsSet("image") || c.IsSet("workdir") || c.IsSet("upload")
}

// notThere returns an error if the argument names a file that does not exist here, and so cannot be a command on the
// node either. A command in PATH or with an absolute path may exist on the node only.
func notThere(c *cli.Context, arg string, err error) error {
	if err == nil && (arg == "." || arg == ".." || strings.HasSuffix(arg, "/")) {
		return usagef("%s: %.200s is a directory, neither a script nor a command", c.Command.Name, arg)
	}
	_, script := interpreters[strings.ToLower(filepath.Ext(arg))]
	relative := strings.Contains(arg, "/") && !filepath.IsAbs(arg)
	if err == nil || elsewhere(c) || !script && !relative || filepath.IsAbs(arg) {
		return nil
	}
	return usagef("%s: %.200s: %w; a command that only the node has goes after --", c.Command.Name, arg, cause(err))
}

// notSent returns an error if the first argument is a file here that the node most likely does not have.
func notSent(c *cli.Context, args []string, info os.FileInfo) error {
	name := args[0]
	if !info.Mode().IsRegular() || elsewhere(c) {
		return nil
	}
	if filepath.IsAbs(name) {
		return notRun(c, args, info)
	}
	if _, err := exec.LookPath(name); err == nil && !strings.Contains(name, "/") {
		return nil // the command may be one of the node
	}
	words := append([]string{"--upload", name, "--"}, args...)
	if by := interpreters[strings.ToLower(filepath.Ext(name))]; by != "" {
		words = slices.Insert(words, 3, by)
	} else if !strings.Contains(name, "/") {
		words[3] = "./" + name
	}
	return usagef("%s: %.200s does not begin with #!, so it is no script; to send it: muster %s %.300s", c.Command.Name, name, c.Command.Name, quoted(words))
}

// notRun returns an error if an absolute path names a file here that cannot be executed. On the nodes it is the same file or
// one like it.
func notRun(c *cli.Context, args []string, info os.FileInfo) error {
	if info.Mode()&0o111 != 0 {
		return nil
	}
	hint := ""
	if by := interpreters[strings.ToLower(filepath.Ext(args[0]))]; by != "" {
		hint = fmt.Sprintf("; if nodes have it: muster %s -- %.300s", c.Command.Name, quoted(append([]string{by}, args...)))
	}
	return usagef("%s: %.200s does not begin with #! and is not executable%s", c.Command.Name, args[0], hint)
}

// directives applies the directives in the leading comments of a script to the spec. The caller finishes the returned
// options after it has applied the flags of the command line.
func (r specReader) directives(name, text string, s *job.Spec) (*lateOptions, error) {
	late := &lateOptions{}
	err := r.eachDirective(name, text, s, late)
	if err == nil && late.slurm.any {
		r.warnSlurmVariables(name, text)
		r.warnSlurmPrograms(name, text)
	}
	return late, err
}

func (r specReader) eachDirective(name, text string, s *job.Spec, late *lateOptions) error {
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			return nil // the leading block ends with the first command
		}
		words, err := split(line)
		if len(words) == 0 || (words[0] != "#MUSTER" && words[0] != "#SBATCH") {
			continue
		}
		if err != nil {
			return usagef("%s:%d: %w", name, i+1, err)
		}
		apply := ourDirective
		if words[0] == "#SBATCH" {
			late.slurm.any = true
			apply = slurmDirective
		}
		for words = words[1:]; len(words) > 0; {
			words, err = apply(words, s, late)
			switch {
			case errors.Is(err, errSlurmWarning):
				fmt.Fprintf(r.err, "muster: %s:%d: warning: %s\n", name, i+1, printable(err.Error()))
			case err != nil:
				return usagef("%s:%d: %w", name, i+1, err)
			}
		}
		if err := s.ValidateFields(); err != nil {
			return usagef("%s:%d: %w", name, i+1, err)
		}
	}
	return nil
}

// split splits a line into words as a shell does, with quotes, up to a comment.
func split(line string) (words []string, err error) {
	var word strings.Builder
	quote, open := rune(0), false
	end := func() {
		if open {
			words = append(words, word.String())
		}
		word.Reset()
		open = false
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, open = r, true
		case quote == 0 && (r == ' ' || r == '\t'):
			end()
		case quote == 0 && r == '#' && !open && len(words) > 0:
			return words, nil
		default:
			word.WriteRune(r)
			open = true
		}
	}
	end()
	if quote != 0 {
		return words, fmt.Errorf("a %c is not closed", quote)
	}
	return words, nil
}

// option takes the option at the front of words in any of its forms: --time=5, --time 5, -t 5, -t5. value says
// whether an option takes a value.
func option(words []string, value func(flag string) (takes, known bool)) (flag, v string, rest []string, err error) {
	word, rest := words[0], words[1:]
	if !isFlag(word) {
		return "", "", rest, fmt.Errorf("%.60q: want a flag", word)
	}
	flag, v, given := strings.Cut(strings.TrimLeft(word, "-"), "=")
	takes, known := value(flag)
	if !known && flag != "" && !strings.HasPrefix(word, "--") {
		if takes, known = value(flag[:1]); known {
			flag, v, given = flag[:1], flag[1:], true
		}
	}
	switch {
	case !known || given || !takes:
		return flag, v, rest, nil
	case len(rest) == 0:
		return flag, "", nil, fmt.Errorf("%s needs a value", word)
	}
	return flag, rest[0], rest[1:], nil
}

// ourDirective applies the first flag of words.
func ourDirective(words []string, s *job.Spec, late *lateOptions) (rest []string, err error) {
	var f *specFlag
	flag, v, rest, err := option(words, func(flag string) (takes, known bool) {
		i := slices.IndexFunc(specFlags, func(f specFlag) bool { return slices.Contains(f.names, flag) })
		if i < 0 {
			return false, false
		}
		f = &specFlags[i]
		return !f.toggle(), true
	})
	switch {
	case err != nil:
	case f == nil:
		err = fmt.Errorf("no such flag: %.60s", words[0])
	case f.read != nil:
		err = fmt.Errorf("%.60s: only on the command line", words[0])
	default:
		if err = f.apply(s, late, v); err != nil {
			err = fmt.Errorf("%s: %w", dashed(flag), err)
		}
	}
	return rest, err
}
