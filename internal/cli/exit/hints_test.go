package exit

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/sandboxbash/sandboxbash/config"
)

// The command line words what would help in each error of a configuration, and leaves the
// other texts alone.
func TestWordConfig(t *testing.T) {
	t.Parallel()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.String("head", "", "")
	if err := flags.Parse([]string{"--head", "beef"}); err != nil {
		t.Fatal(err)
	}
	_, err := config.Load(config.Source{
		Flags: flags,
		Environ: []string{
			"SANDBOXBASH_ENV_SET=LD_PRELOAD=/x", "SANDBOXBASH_ENV_PASS=BASH_ENV", "SANDBOXBASH_SERVE_TLS_CERT=/cert",
			"SANDBOXBASH_AUDIT_FILE_MAX=1k",
		},
		LoadsCode: func(string, string) bool { return true },
	})
	if err == nil || strings.Contains(strings.ReplaceAll(err.Error(), "--head: ", ""), "--") || strings.Contains(err.Error(), "`") {
		t.Fatalf("Load() = %v; want an error that names no flag and no command", err)
	}
	WordConfig(fmt.Errorf("wrapped: %w", err))
	for _, want := range []string{
		"env.set (from SANDBOXBASH_ENV_SET): LD_PRELOAD makes programs load or run something: if that is meant give it by --env-unsafe, or in env.unsafe\n",
		"env.pass (from SANDBOXBASH_ENV_PASS): BASH_ENV makes programs load or run something: if that is meant give it with its value by --env-unsafe, or in env.unsafe\n",
		"serve.tls-cert (from SANDBOXBASH_SERVE_TLS_CERT): a certificate and its key go together: give both --tls-cert and --tls-key\n",
		"--head: it is not a hash: give the 64 hexadecimal digits that `sandboxbash audit verify` has printed\n",
		"audit.file-max (from SANDBOXBASH_AUDIT_FILE_MAX): it must be at least 64k\n",
	} {
		if !strings.Contains(err.Error()+"\n", want) {
			t.Errorf("the error is %q; want %q in it", err, want)
		}
	}
	WordConfig(errors.New("another"))
}
