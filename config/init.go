package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrExists says that there is a configuration file already.
var ErrExists = errors.New("it exists already")

// Init creates the configuration file that Path names, for its user alone, and returns its
// name. Every setting is in it as a comment. It never overwrites: see ErrExists.
func Init(src Source) (string, error) {
	path, err := Path(src)
	if err != nil {
		return "", err
	}
	if path == "" {
		return "", errors.New("the user's configuration directory is not known")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return path, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return path, fmt.Errorf("configuration file %s: %w", path, ErrExists)
	}
	if err != nil {
		return path, err
	}
	_, err = f.Write(Template())
	if err = errors.Join(err, f.Close()); err != nil {
		return path, errors.Join(err, os.Remove(path))
	}
	return path, nil
}

// Template returns a configuration file with every lasting setting and its default, all of it
// as comments.
func Template() []byte {
	var b bytes.Buffer
	b.WriteString(`## The configuration of sandboxbash. Remove the # in front of what you change, and of
## the name of its table. Flags count more than variables, and variables more than this
## file. All keys and forms of values: sandboxbash help config.
`)
	tables := map[string][]Setting{}
	var names []string
	for s := range Settings() {
		name, _, _ := strings.Cut(stored(s.Key), ".")
		if tables[name] == nil {
			names = append(names, name)
		}
		tables[name] = append(tables[name], s)
	}
	for _, name := range names {
		b.WriteString("\n")
		var above []string
		for _, s := range tables[name] {
			keys := strings.Split(stored(s.Key), ".")
			depth := len(keys) - 1
			for i, key := range keys[:depth] {
				if i >= len(above) || above[i] != key {
					fmt.Fprintf(&b, "#%s%s:\n", strings.Repeat("  ", i), key)
					above = append(above[:i:i], key)
				}
			}
			indent := strings.Repeat("  ", depth)
			fmt.Fprintf(&b, "## %s%s\n#%s%s:", indent, s.Usage, indent, keys[depth])
			switch {
			case s.Default != "":
				b.WriteString(" " + scalar(s.Kind, s.Default))
			case s.Kind == List || s.Kind == Lines:
				b.WriteString(" []")
			}
			b.WriteString("\n")
		}
	}
	b.WriteString(`
## values that are masked in all output
#secrets:
#  - {name: GH_TOKEN, from: env, inject: true}
`)
	return b.Bytes()
}
