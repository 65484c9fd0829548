package supervisor

// The directories of libraries that this host adds to the environment of tasks.

import (
	"slices"
	"strings"

	"github.com/musterhq/muster/worker/driver"
)

// linkerPath is the variable with the directories that the dynamic linker searches first.
const linkerPath = "LD_LIBRARY_PATH="

// environmentOf returns the environment of a task. The directories of this host come after those of the user.
func environmentOf(t driver.Task, libraries func() []string) []string {
	if libraries == nil || t.Spec.Image != "" {
		return t.Env
	}
	dirs := libraries()
	if len(dirs) == 0 {
		return t.Env
	}
	env := slices.Clone(t.Env)
	at := slices.IndexFunc(env, func(v string) bool { return strings.HasPrefix(v, linkerPath) })
	if at < 0 {
		env = append(env, linkerPath+strings.Join(dirs, ":"))
		slices.Sort(env)
		return env
	}
	for _, dir := range dirs {
		if own := strings.TrimPrefix(env[at], linkerPath); own == "" {
			env[at] += dir
		} else if !slices.Contains(strings.Split(own, ":"), dir) {
			env[at] += ":" + dir
		}
	}
	return env
}
