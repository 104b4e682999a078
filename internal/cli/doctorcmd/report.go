package doctorcmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/sandboxbash/sandboxbash/engine"
	"github.com/sandboxbash/sandboxbash/internal/cli/core"
	"github.com/sandboxbash/sandboxbash/internal/cli/exit"
)

// report is what doctor --report writes: what a person who cannot log in here needs to know of this machine. It has
// no secret, no variable of the environment and nothing of the configuration but its path, and paths below the
// home directory begin with "~".
type report struct {
	Time    time.Time        `json:"time"`
	Program core.VersionJSON `json:"program"`
	// Engine is nil if none answered.
	Engine   *engine.Info `json:"engine"`
	Findings []finding    `json:"findings"`
}

// newReport creates the file of a report, so that doctor fails before the work if it cannot.
func newReport(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, exit.Misuse("name another file, or remove it", "--report %s: it is there already", path)
	}
	if err != nil {
		return nil, exit.Misuse("name a file that can be created", "--report: %v", err)
	}
	return f, nil
}

// writeReport writes what was found to f, closes it, and says so.
func (a *doctor) writeReport(f *os.File) error {
	text, err := json.MarshalIndent(report{
		Time: time.Now().UTC().Truncate(time.Second), Program: core.Build(a.version), Engine: a.info, Findings: a.found,
	}, "", "  ")
	if err == nil {
		_, err = f.WriteString(a.streams.Scrub(hideHome(string(text), a.env.Home())) + "\n")
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if !a.cfg.JSON {
		fmt.Fprintf(a.streams.Stdout, "\nThe report is %s. Read it before you send it: it names this machine's engine, its address and its warnings.\n", f.Name())
	}
	return nil
}

// hideHome writes "~" for the user's home directory, whose path has the user's name.
func hideHome(text, home string) string {
	if strings.Trim(home, "/") == "" {
		return text
	}
	return strings.ReplaceAll(text, strings.TrimRight(home, "/"), "~")
}
