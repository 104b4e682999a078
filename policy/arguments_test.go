package policy_test

import (
	"strings"
	"testing"

	"github.com/sandboxbash/sandboxbash/policy"
)

func TestReadsArguments(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		script string
		want   bool
	}{
		{`make`, false},
		{``, false},
		{`echo "$HOME" $x ${x} ${#x} ${x[1]} ${!x[@]} ${!BASH*}`, false},
		{`echo $0 $? $$ $! $- $_`, false},
		{`echo '$1' \$1 "\$1" $'$1'`, false},
		{`bash -c 'echo $1'`, false},
		{"bash -c \"echo $1\"", true},
		{`f() { echo "$@"; shift; set -- a; for x; do :; done; getopts a b; [ -v 1 ]; }; f x`, false},
		{`function f { echo $#; }; f x`, false},
		{`f() { echo "$1"; }; f "$@"`, true},
		{`# echo $1`, false},
		{"cat <<'EOF'\n$1\nEOF", false},
		{"cat <<EOF\n$1\nEOF", true},
		{`cat <<<$2`, true},
		{`echo $1`, true},
		{`echo "$10"`, true},
		{`echo ${10}`, true},
		{`echo ${1}`, true},
		{`echo "${@:2}"`, true},
		{`echo ${1:-default}`, true},
		{`echo ${x:-$1}`, true},
		{`echo ${x/a/$1}`, true},
		{`echo "$*"`, true},
		{`echo $#`, true},
		{`echo ${#}`, true},
		{`echo ${#@}`, true},
		{`echo ${!1}`, true},
		{`echo ${!#}`, true},
		{`i=1; echo ${!i}`, true},
		{`echo ${@Q}`, true},
		{`echo $(( $1 + 1 ))`, true},
		{`echo $(echo $1)`, true},
		{"echo `echo $1`", true},
		{`cat <(echo $1)`, true},
		{`x=$1`, true},
		{`x=(a "$@")`, true},
		{`a[$1]=x`, true},
		{`cat >$1`, true},
		{`case $1 in a) ;; esac`, true},
		{`[[ $1 == x ]]`, true},
		{`[[ -v 1 ]]`, true},
		{`[ -v 2 ]`, true},
		{`test -n x`, false},
		{`(( $1 > 2 ))`, true},
		{`(echo $1)`, true},
		{`{ echo $1; } &`, true},
		{`while read -r x; do echo $1; done`, true},
		{`shift`, true},
		{`builtin shift 2`, true},
		{`command -- shift`, true},
		{`echo shift`, false},
		{`git shift`, false},
		{`set -- a b`, true},
		{`set a b`, true},
		{`set -euo pipefail; make`, false},
		{`set -e; set -o pipefail; set +x; make`, false},
		{`set -eo pipefail a`, true},
		{`for x; do echo "$x"; done`, true},
		{`for x do echo "$x"; done`, true},
		{`for x in a b; do echo "$x"; done`, false},
		{`for ((i = 0; i < 3; i++)); do echo $i; done`, false},
		{`select x; do echo "$x"; done`, true},
		{`getopts ab: opt`, true},
		{`while getopts ab: opt "${list[@]}"; do :; done`, false},
		{`echo "${BASH_ARGV[0]}"`, true},
		{`f() { echo "${BASH_ARGV[0]}"; }; f`, true},
		{`eval 'echo $1'`, true},
		{`eval "echo \$1"`, true},
		{`eval "$x"`, false},
		{`trap 'echo $1' EXIT`, true},
		{`trap 'echo bye' EXIT`, false},
		{`f() { trap 'echo $1' EXIT; }; f`, true},
		{`. ./env; make`, false},
		{`. ./script "$@"`, true},
		{`if`, false},
		{"echo $1\nif", true},
		{"if; echo $1", true},
		{strings.Repeat("(", 5000), false},
		{strings.Repeat("x;", 200_000), false},
		{strings.Repeat("x;", 200_000) + "echo $1", true},
		{strings.Repeat("a && ", 90_000) + "b", false},
	} {
		name := test.script[:min(len(test.script), 60)]
		if got := policy.ReadsArguments(test.script); got != test.want {
			t.Errorf("ReadsArguments(%q) = %v; want %v", name, got, test.want)
		}
	}
}

// Text that is not understood ends the program neither.
func FuzzReadsArguments(f *testing.F) {
	for _, seed := range []string{`echo "$@"`, `eval 'eval "echo \$1"'`, "for x\ndo :; done", `trap 'set --' EXIT`, `[[ -v 1`} {
		f.Add(seed)
	}
	f.Fuzz(func(_ *testing.T, script string) { policy.ReadsArguments(script) })
}
