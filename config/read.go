package config

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/docker/go-units"
	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"
)

// reader reads settings from their sources and collects errors. Viper holds what the sources
// give, and resolves which of them counts; from names that source, for errors and for paths
// that are relative to the file.
type reader struct {
	v          *viper.Viper
	from       map[string]string // by key: the flag, variable or file that counts; no entry for a default
	home       string            // "" if there is none
	file       string            // "" if none was read
	loadsCode  func(name, value string) bool
	environ    []string
	secretName func(string) bool
	earlier    map[string][]listed    // by key: of settings whose lists add up, those of all sources but the last
	failed     map[string]bool        // keys
	ruleLimits map[int]map[string]any // of the entries of network.allow in the file that are tables
	errs       []error
}

func newReader(src Source) *reader {
	return &reader{
		v: viper.New(), from: map[string]string{}, home: src.Home, environ: src.Environ,
		secretName: src.SecretName, loadsCode: src.LoadsCode, earlier: map[string][]listed{}, failed: map[string]bool{},
	}
}

// set gives a key a value that counts more than those before.
func (r *reader) set(key string, value any, from string) {
	r.v.Set(stored(key), value)
	r.from[key] = from
}

// keep remembers the list that the sources so far give a setting whose lists add up, before
// another source sets it.
func (r *reader) keep(s Setting) {
	if s.adds && r.given(s.Key) {
		r.earlier[s.Key] = append(r.earlier[s.Key], listed{r.from[s.Key], r.list(s)})
	}
}

// listed is a list with the source that it comes from.
type listed struct {
	from  string
	texts []string
}

// given reports whether the file, a variable or a flag sets the key.
func (r *reader) given(key string) bool { return r.from[key] != "" }

// fill reads a setting into the field that it fills.
func (r *reader) fill(s Setting) {
	switch to := s.to.(type) {
	case *string:
		if *to = r.text(s); s.path && *to != s.word {
			*to = r.place(s.Key, *to)
		}
	case *[]string:
		if *to = r.list(s); s.path {
			for i, path := range *to {
				(*to)[i] = r.place(s.Key, path)
			}
		}
	case *bool:
		*to = r.on(s)
	case *time.Duration:
		*to = r.duration(s)
	case *float64:
		*to = r.number(s)
	case *int:
		*to = int(r.count(s))
	case *int64:
		if s.Kind == Size {
			*to = r.size(s)
		} else {
			*to = r.count(s)
		}
	}
}

// bad records an error. Only the first error of each key is kept.
func (r *reader) bad(key, text, hint string) { r.badWith(key, text, hint, "") }

// badWith is bad with a code for what would help.
func (r *reader) badWith(key, text, hint string, help Help) {
	if r.failed[key] {
		return
	}
	r.failed[key] = true
	bad := &Error{Key: key, Origin: cmp.Or(r.from[key], "the default"), Text: text, Hint: hint, Help: help}
	if s, _ := Lookup(key); s.PerCall {
		bad.Key = "" // only the flag is documented
	}
	r.errs = append(r.errs, bad)
}

// maxShown is how much of a value an error repeats.
const maxShown = 64 // bytes

func shown(value string) string {
	if len(value) > maxShown {
		value = strings.ToValidUTF8(value[:maxShown], "") + "…"
	}
	return strconv.Quote(value)
}

// text returns the value of a setting that has a single value.
func (r *reader) text(s Setting) string {
	var value string
	switch v := r.v.Get(stored(s.Key)).(type) {
	case nil:
	case string:
		value = v
	case bool, int, int64, uint64, float64:
		value = fmt.Sprint(v)
	default:
		r.bad(s.Key, "it must be a single value, not a list or a table", "")
		return ""
	}
	if s.Kind == Choice && !slices.Contains(s.Choices, value) {
		r.bad(s.Key, shown(value)+" is unknown", "it can be "+strings.Join(s.Choices, " or "))
	}
	if strings.IndexByte(value, 0) >= 0 {
		r.bad(s.Key, "it has a NUL byte", "")
	}
	return value
}

func (r *reader) size(s Setting) int64 {
	value := r.text(s)
	if value == "" {
		return 0
	}
	n, err := units.RAMInBytes(value)
	if err != nil || n < 0 {
		r.bad(s.Key, shown(value)+" is not a size", "give bytes, or a number with a unit k, m, g or t, as in 512m or 2g")
		return 0
	}
	return n
}

func (r *reader) count(s Setting) int64 {
	value := r.text(s)
	if value == "" {
		return 0
	}
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil || n < 0 {
		r.bad(s.Key, shown(value)+" is not a count", "give a whole number from 0 on, as in 512")
		return 0
	}
	return n
}

func (r *reader) number(s Setting) float64 {
	value := r.text(s)
	if value == "" {
		return 0
	}
	n, err := strconv.ParseFloat(value, 64)
	if err != nil || n < 0 || math.IsInf(n, 0) || math.IsNaN(n) {
		r.bad(s.Key, shown(value)+" is not a number", "give a number from 0 on, as in 2 or 1.5")
		return 0
	}
	return n
}

func (r *reader) on(s Setting) bool {
	value := r.text(s)
	on, err := strconv.ParseBool(value)
	if err != nil {
		r.bad(s.Key, shown(value)+" is neither true nor false", "")
	}
	return on
}

func (r *reader) duration(s Setting) time.Duration {
	value := r.text(s)
	d, ok := parseDuration(value)
	if !ok {
		r.bad(s.Key, shown(value)+" is not a duration", "give a number with a unit ms, s, m, h or d, as in 30s or 5m; a bare number is seconds")
	}
	return d
}

// parseDuration reads "1h30m", "14d", or seconds.
func parseDuration(text string) (time.Duration, bool) {
	scale := func(number string, unit time.Duration) (time.Duration, bool) {
		n, err := strconv.ParseFloat(number, 64)
		n *= float64(unit)
		if err != nil || math.IsNaN(n) || n < 0 || n >= math.MaxInt64 {
			return 0, false
		}
		return time.Duration(n), true
	}
	if d, ok := scale(text, time.Second); ok {
		return d, true
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		return scale(days, 24*time.Hour)
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= 0
}

// list returns the values of a setting that is a list.
func (r *reader) list(s Setting) []string {
	values := r.values(s.Key)
	for _, v := range values {
		if len(s.Choices) > 0 && !slices.Contains(s.Choices, v) {
			r.bad(s.Key, shown(v)+" is unknown", "it can be "+strings.Join(s.Choices, ", "))
		}
	}
	return values
}

// values returns the texts of a list, unchecked.
func (r *reader) values(key string) []string {
	var out []string
	switch v := r.v.Get(stored(key)).(type) {
	case nil:
	case string:
		if v != "" {
			out = append(out, v)
		}
	case []string: // of a flag or a variable
		out = append(out, v...)
	case []any:
		for _, one := range v {
			text, ok := one.(string)
			if !ok {
				r.bad(key, "it must be a list of texts", "put quotes around each")
				return nil
			}
			out = append(out, text)
		}
	default:
		r.bad(key, "it must be a list of texts", "")
	}
	return out
}

// envName matches the names of environment variables that a command can be given.
var envName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\A[A-Za-z_][A-Za-z0-9_]*\z`)
})

// validateEnv refuses variables that hold a secret or that make programs load code,
// and appends those of env.unsafe. Its errors never repeat a value.
func (r *reader) validateEnv(c *Config) {
	set := slices.Clone(c.Env.Set)
	for i, kv := range set {
		if envName().MatchString(kv) {
			set[i] = r.passed(kv)
			continue
		}
		if name, value, ok := r.variable("env.set", kv); ok && r.loads(name, value) {
			r.badWith("env.set", name+" makes programs load or run something", "if that is meant give it in env.unsafe", HelpUnsafe)
		}
	}
	unsafe := r.values("env.unsafe")
	for _, kv := range unsafe {
		r.variable("env.unsafe", kv)
	}
	c.Env.Set = append(slices.Clip(set), unsafe...)
	for _, name := range c.Env.Pass {
		switch {
		case !envName().MatchString(name):
			r.bad("env.pass", "Invalid bash env name: "+shownName(name), "give names only, without values")
		case r.secretName != nil && r.secretName(name):
			r.bad("env.pass", name+" looks like a secret, and secrets are never passed on unmasked", secretEntry(name))
		case r.loadsInherited(name):
			r.badWith("env.pass", name+" makes programs load or run something", "if that is meant give it with its value in env.unsafe", HelpValue)
		}
	}
}

// variable splits an entry of the form NAME=VALUE, and refuses any other form.
func (r *reader) variable(key, kv string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(kv, "=")
	switch {
	case !ok && envName().MatchString(name):
		r.bad(key, name+" has no value", "give "+name+"=VALUE")
	case !envName().MatchString(name):
		r.bad(key, "Invalid bash env name: "+shownName(name), "names have letters, digits and _, and begin with no digit")
		ok = false
	}
	return name, value, ok
}

// passed returns the variable of this process's environment that an entry of env.set names without a
// value. A secret is not passed on so: env.pass refuses it too.
func (r *reader) passed(name string) string {
	value, ok := r.inherited(name)
	switch {
	case !ok:
		r.bad("env.set", name+" is not set in this environment", "set it, or give "+name+"=VALUE")
	case r.secretName != nil && r.secretName(name):
		r.bad("env.set", name+" looks like a secret, and secrets are never passed on unmasked", secretEntry(name))
	case r.loads(name, value):
		r.badWith("env.set", name+" makes programs load or run something", "if that is meant give it with its value in env.unsafe", HelpValue)
	}
	return name + "=" + value
}

// secretEntry says how a secret of this environment is given to commands.
func secretEntry(name string) string {
	return fmt.Sprintf("take it out and add it to the configuration file as `secrets: [{name: %s, from: env, inject: true}]`", name)
}

func (r *reader) loads(name, value string) bool {
	return r.loadsCode != nil && r.loadsCode(name, value)
}

// inherited returns the value of a variable of this process's environment.
func (r *reader) inherited(name string) (value string, ok bool) {
	for _, kv := range r.environ {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

func (r *reader) loadsInherited(name string) bool {
	value, _ := r.inherited(name)
	return r.loads(name, value)
}

// shownName quotes a bad name, without anything after it that may be a value.
func shownName(name string) string {
	name, _, _ = strings.Cut(name, "=")
	return shown(name)
}

// secretNameForm matches names that a mask can show; see package sink.
var secretNameForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\A[A-Za-z0-9_.-]{1,128}\z`)
})

func (r *reader) secrets() []Secret {
	list := r.listedSecrets()
	seen := map[string]bool{}
	for i := range list {
		r.checkSecret(i, &list[i], seen)
	}
	return list
}

func (r *reader) listedSecrets() []Secret {
	raw := r.v.Get(secretsKey)
	if raw == nil {
		return nil
	}
	var list []Secret
	dec, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{Result: &list, ErrorUnused: true})
	if err == nil {
		err = dec.Decode(raw)
	}
	if err != nil {
		// The decoder's error repeats values, so it is not shown.
		r.badSecret("it is not understood", "give a list of {name, from: env|file|command, source, inject: true|false, hosts: [RULE], in: header|query}, and nothing else")
		return nil
	}
	return list
}

func (r *reader) badSecret(text, hint string) {
	r.errs = append(r.errs, &Error{Key: secretsKey, Origin: r.file, Text: text, Hint: hint})
}

func (r *reader) checkSecret(i int, s *Secret, seen map[string]bool) {
	if !secretNameForm().MatchString(s.Name) {
		r.badSecret(fmt.Sprintf("entry %d has no usable name", i+1), "names have letters, digits, _, - and ., at most 128 of them")
		return
	}
	if seen[s.Name] {
		r.badSecret(s.Name+" is there twice", "give each secret a name of its own")
	}
	seen[s.Name] = true
	if s.Inject && !envName().MatchString(s.Name) {
		r.badSecret(s.Name+" cannot be injected", "its name becomes a variable's: use letters, digits and _, and begin with no digit")
	}
	r.checkSecretHosts(s)
	switch s.From {
	case FromEnv:
		if s.Source == "" {
			s.Source = s.Name
		}
	case FromFile:
		source, err := r.expandHome(s.Source)
		if err != nil {
			r.badSecret(s.Name+": "+err.Error(), "")
			return
		}
		if s.Source = source; source != "" && !filepath.IsAbs(source) {
			s.Source = filepath.Join(filepath.Dir(r.file), source)
		}
	case FromCommand:
	default:
		r.badSecret(fmt.Sprintf("%s: from is %s", s.Name, shown(string(s.From))), "it can be env, file or command")
		return
	}
	if s.Source == "" {
		r.badSecret(s.Name+" has no source", "give the path of the file, or the command line, as source")
	}
}
