#!/bin/sh
# Runs an untrusted script, from any CI whose jobs are shell scripts (Jenkins,
# Buildkite, a cron job). See docs/ci.md.
#
#   ci/shell/run.sh make test
#   ci/shell/run.sh 'make && make test'
#   SANDBOXBASH_TIMEOUT=20m SANDBOXBASH_REPORT_JUNIT=junit.xml ci/shell/run.sh 'make test'
#
# A single argument is a script. Several are a command and its arguments, unchanged.
# Every SANDBOXBASH_ variable is a setting. The exit status is the script's own, or
# one of those that docs/usage.md lists.
set -eu

: "${SANDBOXBASH:=sandboxbash}" # the program
: "${SANDBOXBASH_WORKSPACE:=copy:.}"
export SANDBOXBASH_WORKSPACE

# The words in quotes: one script.
if [ "${1-}" = -- ]; then
	shift
fi
if [ "$#" -gt 1 ]; then
	script=
	for word; do
		script="$script $(printf '%s\n' "$word" | sed "s/'/'\\\\''/g; 1s/^/'/; \$s/\$/'/")"
	done
	set -- "${script# }"
fi

run=
cleanup() {
	status=$?
	trap - EXIT INT TERM HUP
	if [ -n "$run" ]; then # a cancelled job: it ends its session itself
		kill -TERM "$run" 2>/dev/null || :
		wait "$run" || :
	fi
	"$SANDBOXBASH" session reap >/dev/null || : # the output is the script's alone
	exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# In the background, so that a signal to this shell is heeded at once.
"$SANDBOXBASH" run -- "$@" &
run=$!
status=0
wait "$run" || status=$?
run=
exit "$status"
