package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Context describes the session that a plan is for, as JSON:
//
//	{"skills": [{"name", "base_dir", "file_path"?}],
//	 "router": {URL: {"sourcePath"} | {"error"} | {}},
//	 "rules": [{"name", "path"}], "memory_root": DIR, "artifacts_dir": DIR,
//	 "local": {"artifacts_dir": DIR or null, "session_id": ID or null},
//	 "session_cwd": DIR, "home": DIR, "skill_only": BOOL}
//
// All fields are optional. If there is a router, it resolves all URLs; otherwise
// rules, memory and artifacts do. "no_escape" has no effect: whether a URL is quoted
// depends on the field of the call that it is in.
type Context struct {
	Skills     []contextSkill          `json:"skills"`
	Router     map[string]contextRoute `json:"router"`
	Rules      []contextRule           `json:"rules"`
	Memory     string                  `json:"memory_root"`
	Artifacts  string                  `json:"artifacts_dir"`
	Local      *contextLocal           `json:"local"`
	Dir        string                  `json:"session_cwd"`
	Home       string                  `json:"home"`
	SkillsOnly bool                    `json:"skill_only"`
	NoEscape   bool                    `json:"no_escape"`
}

type contextSkill struct {
	Name string `json:"name"`
	Dir  string `json:"base_dir"`
	File string `json:"file_path"`
}

type contextRule struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

type contextLocal struct {
	Artifacts string `json:"artifacts_dir"`
	Session   string `json:"session_id"`
}

type contextRoute struct {
	Path  string `json:"sourcePath"`
	Error string `json:"error"`
}

// parseContext reads a context. Empty input is an empty context.
func parseContext(raw json.RawMessage) (Context, error) {
	var c Context
	members, err := parseObject(raw)
	if err != nil {
		return c, fmt.Errorf("context: %w", err)
	}
	known := []string{
		"skills", "router", "rules", "memory_root", "artifacts_dir", "local", "session_cwd", "home", "skill_only", "no_escape",
	}
	for _, m := range members {
		if !slices.Contains(known, m.name) {
			return c, fmt.Errorf("context: %w", &fault{what: unknown, field: m.name})
		}
	}
	if len(members) == 0 {
		return c, nil
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		if bad, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return c, fmt.Errorf("context: %s: it cannot be a JSON %s", bad.Field, bad.Value)
		}
		return c, fmt.Errorf("context: %w", err)
	}
	return c, nil
}

// apply sets the fields of a host as the context says.
func (c Context) apply(h *Host) {
	h.Dir, h.Home = c.Dir, c.Home
	h.URLs = URLs{SkillsOnly: c.SkillsOnly}
	for _, s := range c.Skills {
		h.URLs.Skills = append(h.URLs.Skills, Skill(s))
	}
	if c.Local != nil {
		h.URLs.Local = &Local{Artifacts: c.Local.Artifacts, Session: c.Local.Session}
	}
	switch {
	case c.Router != nil:
		h.URLs.Resolver = router(c.Router)
	case c.Rules != nil || c.Memory != "" || c.Artifacts != "":
		r := Roots{Artifacts: c.Artifacts, Memory: c.Memory, Rules: map[string]string{}}
		for _, rule := range c.Rules {
			r.Rules[rule.Name] = rule.Path
		}
		h.URLs.Resolver = r
	}
}

// router resolves URLs by a table.
type router map[string]contextRoute

// Resolve implements Resolver. plan:// has a handler only if the table has the URL.
func (r router) Resolve(scheme, url string) (string, error) {
	route, ok := r[url]
	switch {
	case !ok && scheme == "plan":
		return "", ErrNoHandler
	case !ok:
		return "", Refusef("No mapping for %s", url)
	case route.Error != "":
		return "", errors.New(route.Error)
	}
	return route.Path, nil
}
