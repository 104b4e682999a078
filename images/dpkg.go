package images

import (
	"bytes"
	"crypto/md5" //nolint:gosec // dpkg records it; it tells an edited file from an unchanged one
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Where dpkg keeps what is installed.
const (
	dpkgStatus = "/var/lib/dpkg/status"
	dpkgInfo   = "/var/lib/dpkg/info"
)

// debian are the packages that dpkg has installed.
type debian struct {
	info     string // directory of the lists of files
	byName   map[string]*debianPackage
	provides map[string][]string // packages by the virtual names that they provide
}

type debianPackage struct {
	name, arch string
	depends    [][]string        // each is a choice of names
	conffiles  map[string]string // the MD5 that each had in the package
}

// administers are packages that others depend on for their installation alone.
var administers = []string{"adduser", "ca-certificates", "debconf", "debconf-2.0", "dpkg", "init-system-helpers", "install-info", "ucf"}

// readDebian reads dpkg's status. Without such a file there are no packages.
func readDebian(status, info string) (*debian, error) {
	data, err := os.ReadFile(status)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	d := &debian{info: info, byName: map[string]*debianPackage{}, provides: map[string][]string{}}
	for stanza := range bytes.SplitSeq(data, []byte("\n\n")) {
		d.add(fieldsOf(string(stanza)))
	}
	return d, nil
}

// fieldsOf reads the fields of a stanza. A line that starts with a space goes on with the field before.
func fieldsOf(stanza string) map[string]string {
	fields := map[string]string{}
	last := ""
	for line := range strings.Lines(stanza) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, " ") {
			fields[last] += "\n" + line
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if ok {
			last = name
			fields[name] = strings.TrimSpace(value)
		}
	}
	return fields
}

func (d *debian) add(fields map[string]string) {
	name := fields["Package"]
	if name == "" || !strings.HasSuffix(fields["Status"], " installed") {
		return
	}
	p := &debianPackage{name: name, arch: fields["Architecture"], conffiles: map[string]string{}}
	for _, field := range []string{"Depends", "Pre-Depends"} {
		for choice := range strings.SplitSeq(fields[field], ",") {
			if names := packagesIn(choice, "|"); len(names) > 0 {
				p.depends = append(p.depends, names)
			}
		}
	}
	for line := range strings.Lines(fields["Conffiles"]) {
		if words := strings.Fields(line); len(words) == 2 {
			p.conffiles[words[0]] = words[1]
		}
	}
	d.byName[name] = p
	for _, virtual := range packagesIn(fields["Provides"], ",") {
		d.provides[virtual] = append(d.provides[virtual], name)
	}
}

// packagesIn returns the packages' names of a list, without versions and architectures.
func packagesIn(list, separator string) []string {
	var names []string
	for one := range strings.SplitSeq(list, separator) {
		one, _, _ = strings.Cut(strings.TrimSpace(one), " ")
		if one, _, _ = strings.Cut(one, ":"); one != "" {
			names = append(names, one)
		}
	}
	return names
}

// needed returns these packages and all that they depend on, sorted by name. Those that are not
// installed are left out, and so are those that administer the machine.
func (d *debian) needed(names []string) []*debianPackage {
	found := map[string]*debianPackage{}
	for queue := slices.Clone(names); len(queue) > 0; queue = queue[1:] {
		p := d.byName[queue[0]]
		if p == nil || found[p.name] != nil || slices.Contains(administers, p.name) {
			continue
		}
		found[p.name] = p
		for _, choice := range p.depends {
			queue = append(queue, d.chosen(choice)...)
		}
	}
	list := make([]*debianPackage, 0, len(found))
	for _, p := range found {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *debianPackage) int { return strings.Compare(a.name, b.name) })
	return list
}

// chosen returns what satisfies a dependency: the first that is installed under its own name, or
// else what provides one.
func (d *debian) chosen(choice []string) []string {
	for _, name := range choice {
		if d.byName[name] != nil {
			return []string{name}
		}
	}
	for _, name := range choice {
		if by := d.provides[name]; len(by) > 0 {
			return by
		}
	}
	return nil
}

// owners returns the names of the packages that any of the paths belongs to.
func (d *debian) owners(paths map[string]bool) []string {
	lists, _ := filepath.Glob(filepath.Join(d.info, "*.list")) // the pattern is well-formed
	var names []string
	for _, list := range lists {
		if data, err := os.ReadFile(list); err == nil && ownsAny(data, paths) {
			name, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(list), ".list"), ":")
			names = append(names, name)
		}
	}
	return names
}

// files returns the paths of a package, without configuration files that were edited here.
func (d *debian) files(p *debianPackage) []string {
	data, err := os.ReadFile(filepath.Join(d.info, p.name+".list"))
	if errors.Is(err, fs.ErrNotExist) {
		data, err = os.ReadFile(filepath.Join(d.info, p.name+":"+p.arch+".list"))
	}
	if err != nil {
		return nil // it has no files, or is damaged
	}
	var files []string
	for line := range strings.Lines(string(data)) {
		path := strings.TrimSuffix(line, "\n")
		if !strings.HasPrefix(path, "/etc/") || unedited(path, p.conffiles[path]) {
			files = append(files, path)
		}
	}
	return files
}

// unedited reports whether a configuration file, or a link, is as its package brought it.
func unedited(path, sum string) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}
	if sum == "" { // not a configuration file: a directory or a link of the package
		return !info.Mode().IsRegular()
	}
	data, err := os.ReadFile(path)
	have := md5.Sum(data) //nolint:gosec // as above
	return err == nil && hex.EncodeToString(have[:]) == sum
}
