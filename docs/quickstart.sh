#!/usr/bin/env bash
# The main job, from nothing: make quickstart. It needs a Docker engine, and
# neither a registry nor a network. The commands that it runs stand behind a $.
#
#   docs/quickstart.sh [BINARY]
#
# It exits with 0 only if everything went as it should.
set -euo pipefail
PATH="$(cd "$(dirname "${1:-bin/sandboxbash}")" && pwd):$PATH"

session=
stop() {
	status=$?
	trap - EXIT
	if [ -n "$session" ]; then
		run 0 sandboxbash session stop "$session" || status=1
	fi
	exit "$status"
}
trap stop EXIT
trap 'exit 130' INT TERM

# run STATUS COMMAND…: shows the command, runs it, and wants that exit status.
run() {
	local want=$1 got=0
	shift
	printf '\n$'
	printf ' %s' "${@@Q}" | sed "s/'\([A-Za-z0-9_.:=/-]*\)'/\1/g"
	printf '\n'
	"$@" || got=$?
	if [ "$got" -ne "$want" ]; then
		echo "quickstart: exit status $got; want $want" >&2
		return 1
	fi
	[ "$got" -eq 0 ] || echo "(exit status $got, as it should be)"
}

echo "# An image of this machine's own programs: no registry is asked."
run 0 sandboxbash image host

echo
echo "# A session: one hardened container, with a copy of this directory in it."
printf '\n$ id=$(sandboxbash session start --image host --workspace copy:.)\n'
session=$(sandboxbash session start --image host --workspace copy:.)
[ -n "$session" ]

echo
echo "# A command that uses the workspace, one that fails, and one that takes too long."
run 0 sandboxbash session exec "$session" 'whoami; pwd; ls | head -5; find . -name "*.go" | wc -l >count; cat count'
run 2 sandboxbash session exec "$session" 'ls /nowhere'
run 124 sandboxbash session exec --timeout 1s "$session" 'echo started; sleep 60'

echo
echo "# The session is there until it is stopped, for any process of this user."
run 0 sandboxbash session ls
