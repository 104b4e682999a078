package network

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// preset is a list of rules with a name.
type preset struct {
	name  string
	about string
	rules []Rule // as an allow rule
	hosts []Rule // as a deny rule: the hosts of rules, every port
}

// Preset is a list of rules with a name, as people read it.
type Preset struct {
	Name  string
	About string
	Rules []Rule
}

// listed is what each preset stands for, as people write it. docs/network.md shows it.
var listed = []struct {
	name, about string
	rules       []string
	readOnly    bool // there is also a form with :ro, for GET and HEAD
}{
	{"@npm", "packages of npm and Yarn", []string{"registry.npmjs.org", "registry.yarnpkg.com"}, true},
	{"@pypi", "packages of pip and uv", []string{"files.pythonhosted.org", "pypi.org"}, true},
	{"@go", "modules of Go, and the database of their checksums", []string{
		"proxy.golang.org", "sum.golang.org",
		"GET,HEAD storage.googleapis.com:443/proxy-golang-org-prod/*", // where the proxy sends clients for large modules
	}, true},
	{"@cargo", "crates and their index", []string{"crates.io", "index.crates.io", "static.crates.io"}, true},
	{"@apt", "packages of Debian and Ubuntu", []string{
		"archive.ubuntu.com", "deb.debian.org", "ports.ubuntu.com", "security.debian.org", "security.ubuntu.com",
	}, true},
	{"@github", "repositories, files and releases on GitHub: read and fetch over https", append(gitRules("github.com"),
		"GET,HEAD api.github.com:443",
		"GET,HEAD codeload.github.com:443",
		"GET,HEAD objects.githubusercontent.com:443",
		"GET,HEAD raw.githubusercontent.com:443",
		"GET,HEAD release-assets.githubusercontent.com:443",
	), false},
	{"@git", "repositories on public servers: read and fetch over https", slices.Concat(
		gitRules("bitbucket.org"), gitRules("codeberg.org"), gitRules("git.sr.ht"), gitRules("github.com"), gitRules("gitlab.com"),
	), false},
}

// gitRules let git clone and fetch from a host, and never push: a push asks for
// git-receive-pack in the query of a GET first.
func gitRules(host string) []string {
	return []string{
		"GET,HEAD " + host + ":443 !git-receive-pack",
		"POST " + host + ":443/*/git-upload-pack !git-receive-pack",
	}
}

// presets are parsed when the first is asked for.
var presets = sync.OnceValue(func() map[string]*preset {
	all := map[string]*preset{}
	add := func(name, about string, rules []string, readOnly bool) {
		one := &preset{name: name, about: about}
		for _, text := range rules {
			if readOnly && !strings.Contains(text, " ") { // the others have methods
				text = "GET,HEAD " + text
			}
			p := parser{text: text}
			r, ok := p.hostRule(fields(p.text))
			if !ok {
				panic(p.err) // a test makes them all
			}
			one.rules = append(one.rules, r)
			host := Rule{host: r.host, sub: r.sub, prefix: r.prefix}
			if !slices.ContainsFunc(one.hosts, func(h Rule) bool { return h.String() == host.String() }) {
				one.hosts = append(one.hosts, host)
			}
		}
		all[name] = one
	}
	for _, l := range listed {
		add(l.name, l.about, l.rules, false)
		if l.readOnly {
			add(l.name+":ro", l.about+", read-only", l.rules, true)
		}
	}
	return all
})

// PresetNames returns the names of all presets, as rules name them, in ascending order.
func PresetNames() []string { return slices.Sorted(maps.Keys(presets())) }

// Presets returns all presets, in the order of their names. The slice is the caller's.
func Presets() []Preset {
	var all []Preset
	for _, name := range PresetNames() {
		p := presets()[name]
		all = append(all, Preset{Name: p.name, About: p.about, Rules: slices.Clone(p.rules)})
	}
	return all
}
