#!/usr/bin/env bash
# Records a terminal and writes it as a picture: docs/picture.sh [BINARY] >docs/terminal.svg
#
# It runs the commands below on a real engine and shows what they print, as it is.
# Times and ids differ from run to run.
set -euo pipefail
PATH="$(cd "$(dirname "${1:-bin/sandboxbash}")" && pwd):$PATH"
export SANDBOXBASH_IMAGE=host

session=$(sandboxbash session start)
trap 'sandboxbash session stop "$session" >/dev/null' EXIT

# show COMMAND: prints the prompt, the command and what it prints.
show() {
	printf '$ %s\n' "$1"
	id=$session bash -c "$1" 2>&1 || true
}

record() {
	show "sandboxbash session exec \$id 'id -un; ls /sys/class/net; touch /etc/x'"
	show "sandboxbash session exec --timeout 1s \$id 'trap \"\" TERM; sleep 600 & sleep 600'; echo \$?"
	show "sandboxbash session ps \$id"
	show "sandboxbash session exec \$id 'exit 124'; echo \$?"
	show "sandboxbash session exec --json \$id 'kill -SEGV \$\$' | grep -oE '\"(reason|exitCode|signal)\":[^,]*'"
}

# Each line is a text element. Widths are those of a fixed font of 14 pixels.
record | awk '
	{ gsub(/&/, "\\&amp;"); gsub(/</, "\\&lt;"); gsub(/>/, "\\&gt;"); gsub(/\t/, "    "); lines[NR] = $0 }
	END {
		height = NR * 20 + 32
		printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"860\" height=\"%d\" viewBox=\"0 0 860 %d\" role=\"img\">\n", height, height
		print "<title>Commands in a sandboxbash session, and how they ended</title>"
		print "<style>text{font:14px ui-monospace,Menlo,Consolas,monospace;white-space:pre;fill:#d8dee9}.command{fill:#a3be8c}.note{fill:#ebcb8b}</style>"
		printf "<rect width=\"860\" height=\"%d\" rx=\"8\" fill=\"#1f2430\"/>\n", height
		for (i = 1; i <= NR; i++) {
			class = lines[i] ~ /^\$ / ? " class=\"command\"" : lines[i] ~ /^sandboxbash: / ? " class=\"note\"" : ""
			printf "<text x=\"16\" y=\"%d\"%s xml:space=\"preserve\">%s</text>\n", i * 20 + 12, class, lines[i]
		}
		print "</svg>"
	}'
