package configcmd

import (
	"fmt"
	"strings"

	"github.com/sandboxbash/sandboxbash/config"
)

// text is the page of help about the configuration.
func text() string {
	var b strings.Builder
	b.WriteString(`A setting is taken from its flag, else from its environment variable, else from the
configuration file, else it has its default. The file is YAML:

  image: host
  timeout: 10m
  limits:
    memory: 4g
  env:
    pass: [LANG, TZ]
  secrets:
    - {name: GH_TOKEN, from: env, inject: true}
    - {name: API_KEY, from: env, hosts: [api.example.com]}
    - {name: deploy-key, from: file, source: ~/.ssh/deploy}

The file is --config, else $SANDBOXBASH_CONFIG, else sandboxbash/config.yaml in the
user's configuration directory. The current directory is never searched.

Paths in the file are relative to the file; paths in flags and variables are relative
to the current directory. A leading ~ is the home directory. Flags that are not listed
below apply to a single call: they have no key and no variable.

A secret has at least 8 bytes, comes from env, file or command, and is masked in all
output. With inject: true commands get it as a variable of its name. With hosts they get
a placeholder, which becomes the value in requests to these hosts; network rules must
allow them too.

Keys, with their variables and flags:
`)
	for s := range config.Settings() {
		fmt.Fprintf(&b, "\n  %s\n      %s", s.Key, s.Env())
		if s.Flag != "" {
			fmt.Fprintf(&b, ", --%s", s.Flag)
		}
		if s.Default != "" {
			fmt.Fprintf(&b, " (default %s)", s.Default)
		}
		fmt.Fprintf(&b, "\n      %s", s.Usage)
	}
	b.WriteString("\n\n  secrets, policy.rules\n      in the file only")
	return b.String()
}
