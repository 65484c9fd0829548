package fairshare

// Weights of users and projects, as they are in a configuration file.

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/job"
)

// Weights says what part of the cluster users and projects should have, and how fast usage is forgotten.
type Weights struct {
	HalfLife time.Duration      // what was used so long ago counts half; 0: usage is not counted
	Users    map[string]float64 // a user who is not listed has weight 1
	Projects map[string]float64 // a project that is not listed has no share of its own
	Others   float64            // of all jobs together that are of no listed project; 0 means 1
}

// DefaultHalfLife is the half-life if the configuration does not give one.
const DefaultHalfLife = 24 * time.Hour

const (
	// MinHalfLife is the shortest half-life: below, the order would follow single short tasks.
	MinHalfLife = 10 * time.Second
	// MaxHalfLife is the longest half-life.
	MaxHalfLife = 366 * 24 * time.Hour
	minWeight   = 1e-3
	maxWeight   = 1e6
	// maxNames bounds the users and projects of a configuration.
	maxNames = 1 << 16

	halfLifeKey = "half_life"
	othersKey   = "others"
	usersDot    = "users."
	projectsDot = "projects."
	usage       = "want half_life, others, users.NAME or projects.NAME"
)

// Parse parses weights as they are in a configuration file: half_life = 1d, users.ada = 3, projects.vision = 2,
// others = 1.
func Parse(settings map[string]string) (Weights, error) {
	w := Weights{HalfLife: DefaultHalfLife, Users: map[string]float64{}, Projects: map[string]float64{}}
	if len(settings) > maxNames {
		return Weights{}, fmt.Errorf("%d entries; at most %d", len(settings), maxNames)
	}
	for name, text := range settings {
		if err := w.set(name, text); err != nil {
			return Weights{}, err
		}
	}
	return w, nil
}

// Check returns an error if an entry is not valid.
func Check(name, text string) error {
	_, err := Parse(map[string]string{name: text})
	return err
}

func (w *Weights) set(name, text string) error {
	user, isUser := strings.CutPrefix(name, usersDot)
	project, isProject := strings.CutPrefix(name, projectsDot)
	switch {
	case name == halfLifeKey:
		d, err := job.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if d != 0 && (d.D() < MinHalfLife || d.D() > MaxHalfLife) {
			return fmt.Errorf("%s: %.40q: want %s to %s, or 0s to count no usage", name, text, job.Duration(MinHalfLife), job.Duration(MaxHalfLife))
		}
		w.HalfLife = d.D()
		return nil
	case isProject:
		if err := job.CheckProject(project); err != nil || project == "" {
			return fmt.Errorf("%.80q: want projects.NAME with at most %d letters, digits and ._-/: in NAME", name, job.MaxProject)
		}
	case isUser && user != "", name == othersKey:
	default:
		return fmt.Errorf("%.80q: %s", name, usage)
	}
	weight, err := strconv.ParseFloat(text, 64)
	if err != nil || !(weight >= minWeight && weight <= maxWeight) {
		return fmt.Errorf("%.80s: %.40q: want a weight of %g to %g", name, text, minWeight, maxWeight)
	}
	switch {
	case isProject:
		w.Projects[project] = weight
	case isUser:
		w.Users[user] = weight
	default:
		w.Others = weight
	}
	return nil
}

// On reports whether usage counts.
func (w *Weights) On() bool { return w.HalfLife > 0 }

// User returns the weight of a user.
func (w *Weights) User(name string) float64 {
	if x, listed := w.Users[name]; listed {
		return x
	}
	return 1
}

// Project returns the weight of a project. All that are not listed count as one.
func (w *Weights) Project(name string) float64 {
	if x, listed := w.Projects[name]; listed {
		return x
	}
	if w.Others > 0 {
		return w.Others
	}
	return 1
}

// Account returns the account under which usage is compared: without the project, if that has no share of its own.
func (w *Weights) Account(a Account) Account {
	if _, listed := w.Projects[a.Project]; !listed {
		a.Project = ""
	}
	return a
}

// Period returns how often usage is told and compared anew: 10 s with a half-life of a day. In that time no standing
// changes by much.
func (w *Weights) Period() time.Duration {
	return min(max(w.HalfLife/8640, time.Second), 10*time.Second)
}
