package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Source is everything that a configuration is made from. Package config reads
// neither the process's environment nor, except for a relative File, its current
// directory.
type Source struct {
	// Dir is the user's configuration directory. If it is "" or relative, it is
	// not used.
	Dir string
	// File is the file to read, which must exist. If it is "", Load reads the file
	// that the variable SANDBOXBASH_CONFIG names, or else sandboxbash/config.yaml
	// in Dir if that exists.
	File    string
	Environ []string       // K=V
	Flags   *pflag.FlagSet // as parsed; nil: none
	Home    string         // the user's home directory, for ~; "" if there is none
	// SecretName reports whether a variable of this name probably holds a secret;
	// env.pass refuses such names. If it is nil, no name does.
	SecretName func(name string) bool
	// LoadsCode reports whether a variable makes programs load or run something;
	// only env.unsafe accepts such a variable. If it is nil, none does.
	LoadsCode func(name, value string) bool
}

// maxFile bounds a configuration file.
const maxFile = 1 << 20 // bytes

// Load reads and checks the configuration. If the configuration itself is wrong, the
// error joins one *Error or *UnknownKeyError for each fault.
func Load(src Source) (*Config, error) {
	c := &Config{}
	r, all, err := read(src, c)
	if err != nil {
		return nil, err
	}
	return r.build(c, all)
}

// read reads all sources, for the settings that fill c.
func read(src Source, c *Config) (*reader, []Setting, error) {
	r, env := newReader(src), environment(src.Environ)
	if err := r.readFile(src, env); err != nil {
		return nil, nil, err
	}
	all := settingsOf(c)
	for _, s := range all { // the later source counts
		if s.Default != "" {
			r.v.SetDefault(stored(s.Key), s.Default)
		}
		if text := env[s.Env()]; text != "" {
			r.keep(s)
			r.set(s.Key, s.split(text), s.Env())
		}
		if f := changed(src.Flags, s); f != nil {
			r.keep(s)
			r.set(s.Key, flagValue(f), "--"+f.Name)
		}
	}
	return r, all, nil
}

// Secrets returns the secrets that a source's file lists, so that they can be masked
// in messages about a configuration that Load refuses. Entries that are wrong
// themselves are left out.
func Secrets(src Source) (list []Secret, file string) {
	r := newReader(src)
	_ = r.readFile(src, environment(src.Environ)) // Load tells what is wrong with it
	for i, s := range r.listedSecrets() {
		errs := len(r.errs)
		if r.checkSecret(i, &s, map[string]bool{}); len(r.errs) == errs {
			list = append(list, s)
		}
	}
	return list, r.file
}

// changed returns the flag of a setting if it was given, else nil.
func changed(flags *pflag.FlagSet, s Setting) *pflag.Flag {
	if flags == nil || s.Flag == "" {
		return nil
	}
	// A command may have a switch of its own with this name, as doctor has --network.
	if f := flags.Lookup(s.Flag); f != nil && f.Changed && (f.Value.Type() == "bool") == (s.Kind == Switch) {
		return f
	}
	return nil
}

// flagValue returns the text of a flag, or its texts if it may be repeated.
func flagValue(f *pflag.Flag) any {
	if list, ok := f.Value.(interface{ GetSlice() []string }); ok {
		return list.GetSlice()
	}
	return f.Value.String()
}

// split returns the value that the text of a variable stands for.
func (s Setting) split(text string) any {
	var parts []string
	switch s.Kind {
	case List:
		for part := range strings.SplitSeq(text, ",") {
			parts = append(parts, strings.TrimSpace(part))
		}
	case Lines:
		parts = strings.Split(text, "\n")
	default:
		return text
	}
	return slices.DeleteFunc(parts, func(part string) bool { return part == "" })
}

func environment(environ []string) map[string]string {
	env := map[string]string{}
	for _, kv := range environ {
		if name, value, ok := strings.Cut(kv, "="); ok && strings.HasPrefix(name, EnvPrefix) {
			env[name] = value
		}
	}
	return env
}

// testPrefix is the prefix of variables for this project's own tests.
const testPrefix = EnvPrefix + "TEST_"

// UnknownVariables returns the variables that have our prefix but belong to no
// setting. The value of each is the flag that it is named after, as in --all, else
// the variable that was probably meant, else "".
func UnknownVariables(environ []string) map[string]string {
	names := []string{EnvFile}
	perCall := map[string]string{}
	for _, s := range known().all {
		if s.PerCall {
			perCall[s.variable()] = "--" + s.Flag
		} else {
			names = append(names, s.Env())
		}
	}
	unknown := map[string]string{}
	for name := range environment(environ) {
		if slices.Contains(names, name) || strings.HasPrefix(name, testPrefix) {
			continue
		}
		if unknown[name] = perCall[name]; unknown[name] == "" {
			unknown[name] = nearest(name, names)
		}
	}
	return unknown
}

// readFile reads the configuration file, if there is one.
func (r *reader) readFile(src Source, env map[string]string) error {
	path, asked, err := r.findFile(src, env)
	if err != nil || path == "" {
		return err
	}
	info, err := os.Stat(path)
	switch {
	case !asked && errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("configuration file: %w", err)
	case info.IsDir():
		return fmt.Errorf("configuration file %s is a directory", path)
	case info.Size() > maxFile:
		return fmt.Errorf("configuration file %s is %d bytes long; the limit is %d", path, info.Size(), maxFile)
	}
	r.v.SetConfigFile(path)
	r.v.SetConfigType("yaml")
	if err := r.v.ReadInConfig(); err != nil {
		return fmt.Errorf("configuration file %s: %w", path, err)
	}
	r.file = path
	if err := r.tabulate(); err != nil {
		return fmt.Errorf("configuration file %s: %w", path, err)
	}
	return r.knownKeys()
}

// Path returns the name of the file that Load reads, or would read if it existed; "" if
// there is none.
func Path(src Source) (string, error) {
	path, _, err := newReader(src).findFile(src, environment(src.Environ))
	return path, err
}

// findFile names the configuration file. It was asked for if the user has named it.
func (r *reader) findFile(src Source, env map[string]string) (path string, asked bool, err error) {
	path, asked = src.File, true
	if path == "" {
		path = env[EnvFile]
	}
	if path == "" && filepath.IsAbs(src.Dir) {
		path, asked = filepath.Join(src.Dir, "sandboxbash", "config.yaml"), false
	}
	if path == "" {
		return "", false, nil
	}
	path, err = r.expandHome(path)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", asked, fmt.Errorf("configuration file: %w", err)
	}
	return path, asked, nil
}

// UnknownKeyError reports a key in the file that belongs to no lasting setting.
type UnknownKeyError struct {
	Key     string
	File    string // "": the key is not from a file
	Nearest string // the key that is probably meant, or ""
	Flag    string // if the key is that of a per-call setting, its flag; or ""
}

func (e *UnknownKeyError) Error() string {
	text := "unknown key " + shown(e.Key)
	if e.File != "" {
		text = e.File + ": " + text
	}
	switch {
	case e.Flag != "":
		text += fmt.Sprintf(" (it applies to a single call: give --%s)", e.Flag)
	case e.Nearest != "":
		text += fmt.Sprintf(" (did you mean %s?)", e.Nearest)
	}
	return text
}

// isTable reports whether known keys lie below a key.
func isTable(key string, known map[string]string) bool {
	for k := range known {
		if strings.HasPrefix(k, key+".") {
			return true
		}
	}
	return false
}

// knownKeys records which keys the file has, and returns an error for those that
// no lasting setting has.
func (r *reader) knownKeys() error {
	known := map[string]string{secretsKey: secretsKey, rulesKey: rulesKey, networkKey: networkKey}
	for s := range Settings() {
		known[strings.ToLower(stored(s.Key))] = s.Key // viper has keys in lower case
	}
	keys := r.v.AllKeys() // only those of the file: it is read first
	slices.Sort(keys)
	var errs []error
	for _, key := range keys {
		switch {
		case known[key] != "":
			r.from[known[key]] = r.file
		case r.v.Get(key) == nil && isTable(key, known): // a heading, whose settings are comments
		default:
			bad := &UnknownKeyError{Key: key, File: r.file}
			if s, ok := Lookup(key); ok { // keys of single calls are in lower case
				bad.Flag = s.Flag
			} else {
				bad.Nearest = known[nearest(key, slices.Sorted(maps.Keys(known)))]
			}
			errs = append(errs, bad)
		}
	}
	return errors.Join(errs...)
}
