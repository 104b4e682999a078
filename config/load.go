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
	"github.com/spf13/viper"
)

// Source is what a configuration is made from. Package config looks at nothing
// else: not at the process's environment, and not at the current directory but
// for a relative File.
type Source struct {
	// Dir is the user's directory for configuration, in which sandboxbash's may
	// lie; "" or a relative one is none.
	Dir string
	// File is the file to read, which must then exist; "" is the one that the
	// variable SANDBOXBASH_CONFIG names, or sandboxbash/config.yaml in Dir if
	// that exists.
	File    string
	Environ []string       // K=V
	Flags   *pflag.FlagSet // as parsed; nil: none
	// SecretName tells names of variables that hold secrets: env.pass may not
	// have them. Nil tells none.
	SecretName func(name string) bool
}

// maxFile bounds a configuration file.
const maxFile = 1 << 20 // bytes

// Load reads and checks the configuration. The error is made of *Error and of
// *UnknownKeyError where the configuration itself is wrong.
func Load(src Source) (*Config, error) {
	r := &reader{
		v: viper.New(), inFile: map[string]bool{}, inEnv: map[string]string{}, flags: map[string]*pflag.Flag{},
		secretName: src.SecretName, failed: map[string]bool{},
	}
	settings := Settings()
	for s := range settings {
		if s.Default != "" {
			r.v.SetDefault(s.Key, s.Default)
		}
	}
	env := environment(src.Environ)
	if err := r.readFile(src, env); err != nil {
		return nil, err
	}
	for s := range settings {
		if value := env[s.Env()]; value != "" {
			r.inEnv[s.Key] = value
			// Above the file, below the flags.
			if err := r.v.MergeConfigMap(nested(s.Key, value)); err != nil {
				return nil, fmt.Errorf("%s: %w", s.Env(), err)
			}
		}
		if err := r.bind(src.Flags, s); err != nil {
			return nil, err
		}
	}
	return r.build()
}

func (r *reader) bind(flags *pflag.FlagSet, s Setting) error {
	if flags == nil || s.Flag == "" {
		return nil
	}
	f := flags.Lookup(s.Flag)
	if f == nil {
		return nil
	}
	if f.Changed {
		r.flags[s.Key] = f
	}
	return r.v.BindPFlag(s.Key, f)
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

// testPrefix begins variables that steer this project's own tests.
const testPrefix = EnvPrefix + "TEST_"

// UnknownVariables returns the variables that begin like ours and are none,
// each with the one that is probably meant, or "".
func UnknownVariables(environ []string) map[string]string {
	known := []string{EnvFile}
	for s := range Settings() {
		known = append(known, s.Env())
	}
	unknown := map[string]string{}
	for name := range environment(environ) {
		if !slices.Contains(known, name) && !strings.HasPrefix(name, testPrefix) {
			unknown[name] = nearest(name, known)
		}
	}
	return unknown
}

// nested makes the tables that lead to a key.
func nested(key string, value any) map[string]any {
	first, rest, deeper := strings.Cut(key, ".")
	if deeper {
		return map[string]any{first: nested(rest, value)}
	}
	return map[string]any{first: value}
}

// readFile reads the one file that there may be.
func (r *reader) readFile(src Source, env map[string]string) error {
	path, asked := src.File, true
	if path == "" {
		path = env[EnvFile]
	}
	if path == "" && filepath.IsAbs(src.Dir) {
		path, asked = filepath.Join(src.Dir, "sandboxbash", "config.yaml"), false
	}
	if path == "" {
		return nil
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("configuration file: %w", err)
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
	file := viper.New()
	file.SetConfigFile(path)
	file.SetConfigType("yaml")
	if err := file.ReadInConfig(); err != nil {
		return fmt.Errorf("configuration file %s: %w", path, err)
	}
	r.file = path
	if err := r.knownKeys(file); err != nil {
		return err
	}
	return r.v.MergeConfigMap(file.AllSettings())
}

// UnknownKeyError says that a file has a key that means nothing.
type UnknownKeyError struct {
	Key     string
	File    string
	Nearest string // the key that is probably meant, or ""
}

func (e *UnknownKeyError) Error() string {
	text := fmt.Sprintf("%s: unknown key %s", e.File, shown(e.Key))
	if e.Nearest != "" {
		text += fmt.Sprintf(" (did you mean %s?)", e.Nearest)
	}
	return text
}

// knownKeys remembers which keys the file has, and refuses those that no
// setting has.
func (r *reader) knownKeys(file *viper.Viper) error {
	known := map[string]string{secretsKey: secretsKey, rulesKey: rulesKey}
	for s := range Settings() {
		known[strings.ToLower(s.Key)] = s.Key // viper has keys in lower case
	}
	keys := file.AllKeys()
	slices.Sort(keys)
	var errs []error
	for _, key := range keys {
		r.inFile[known[key]] = true
		if known[key] == "" {
			like := nearest(key, slices.Sorted(maps.Keys(known)))
			errs = append(errs, &UnknownKeyError{Key: key, File: r.file, Nearest: known[like]})
		}
	}
	return errors.Join(errs...)
}
