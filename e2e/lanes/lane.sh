#!/usr/bin/env bash
# lane.sh NAME [FLAG…]: runs the checks of docs/lanes.md on the engine that NAME.sh sets up in a guest. Flags are those
# of go test, as -v. Without a name it lists the lanes.
set -euo pipefail
here=$(realpath "$(dirname "$0")")
repo=$(realpath "$here/../..")
if [ $# = 0 ] || [ ! -e "$here/$1.sh" ] || [ "$1" = lane ] || [ "$1" = guest ]; then
	echo "usage: make lane NAME=…, one of:" >&2
	for file in "$here"/*.sh; do
		name=$(basename "$file" .sh)
		case $name in lane | guest) ;; *) printf '  %-20s %s\n' "$name" "$(sed -n '2s/^# //p' "$file")" >&2 ;; esac
	done
	exit 2
fi
name=$1
shift
share=$(mktemp -d)
trap 'rm -rf "$share"' EXIT
mkdir "$share/programs" "$share/source"
cd "$repo"
# The guest has no Go: it gets the programs, and the files that tests read.
export CGO_ENABLED=0
go build -trimpath -ldflags='-s -w' -o "$share/programs/" ./cmd/sandboxbash ./e2e/probe
go test -c -o "$share/programs/e2e.test" ./e2e
git ls-files -z e2e docs | tar --create --null --files-from=- | tar --extract --directory "$share/source"
cp "$here/$name.sh" "$share/lane.sh"
# What go test calls -v is -test.v to a test binary.
"$here/guest.sh" "$share" /bin/bash lane.sh env SANDBOXBASH_TEST_PROGRAMS=/share/programs \
	/bin/bash -c 'cd source/e2e && exec /share/programs/e2e.test -test.run="^TestLanes$" "$@"' checks "${@/#-/-test.}"
