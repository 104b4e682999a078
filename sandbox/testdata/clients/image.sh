#!/usr/bin/env bash
# Makes the image of TestNetworkClients' lane (make clients) and prints its name: the
# programs of the table, out of Debian's packages, which are unpacked and not installed.
# Packages stay in a cache, and an image of the same packages is not made again.
# `image.sh remove` removes the images and the cache, which is all that is left.
set -euo pipefail
export LC_ALL=C

cache=${XDG_CACHE_HOME:-$HOME/.cache}/sandboxbash-test-clients
name=sbx-test-clients

if [ "${1-}" = remove ]; then
	rm -rf "$cache"
	docker image ls --format '{{.Repository}}:{{.Tag}}' "$name" | xargs -r docker image rm >/dev/null
	exit
fi

die() {
	printf 'make clients: %s\n' "$@" >&2
	exit 1
}
for program in apt-get awk dpkg-deb docker; do
	command -v "$program" >/dev/null || die "$program is needed: this lane runs on Debian and Ubuntu with a Docker engine"
done

packages=(
	base-files base-passwd bash coreutils debianutils findutils gawk grep gzip libc-bin sed tar util-linux
	apt cargo curl git nodejs npm openjdk-17-jdk-headless openssh-client openssl perl postgresql-client
	python3-pip python3-requests wget
	openssh-server postgresql # the servers of this machine for ssh and psql
)
# What compiles C, and what links Rust: the clients fetch, and build nothing.
unneeded='^(gcc|g\+\+|cpp|binutils|linux-libc-dev|libstd-rust-dev|libc6-dev|lib(gcc|stdc\+\+)-.*-dev|lib(asan|tsan|lsan|ubsan|itm|gprofng|binutils|cc1)[-0-9].*)(-|$)'

mkdir -p "$cache/debs"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# A mirror that does not answer is asked again, and given up.
fetching=(-o Acquire::Retries=3 -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30)
update() {
	apt-get "${fetching[@]}" -q update >&2 || die "apt-get update: the lists of packages cannot be fetched: see above. Are the mirrors in /etc/apt reachable from this machine?"
}

# As if nothing was installed: what this machine has is not in the image.
plan() {
	: >"$work/status"
	mkdir -p "$work/none/partial"
	apt-get -y --no-install-recommends --print-uris -o Dir::State::status="$work/status" -o Dir::Cache::archives="$work/none" install "${packages[@]}" |
		awk -F"[ ']+" '/^'"'"'/ { split($3, part, "_"); gsub("%3a", ":", part[2]); print part[1] "=" part[2] }' |
		grep -vE "$unneeded" | sort -u
}
if ! plan >"$work/plan" 2>/dev/null || [ ! -s "$work/plan" ]; then
	update
	plan >"$work/plan" || die "the mirrors in /etc/apt do not have all packages of ${BASH_SOURCE[0]}: see above"
fi

image=$name:$(cat "$work/plan" "$0" | sha256sum | cut -c-16)
if docker image inspect "$image" >/dev/null 2>&1; then
	echo "$image"
	exit
fi

# missing lists the packages that are not in the cache.
missing() {
	while IFS== read -r package version; do
		compgen -G "$cache/debs/${package}_${version//:/%3a}_*.deb" >/dev/null || echo "$package=$version"
	done <"$work/plan"
}
# download fetches them, and says of those that it did not get which they are.
download() {
	missing >"$work/missing"
	(cd "$cache/debs" && xargs -r -a "$work/missing" apt-get "${fetching[@]}" -o APT::Sandbox::User=root -qq download >&2) || true
	missing >"$work/missing"
	[ ! -s "$work/missing" ]
}
if ! download; then # the lists are older than the mirror
	update
	plan >"$work/plan"
	download || die "these packages cannot be fetched: $(tr '\n' ' ' <"$work/missing")" "see apt's errors above; what is there stays in $cache, and another try fetches the rest"
	image=$name:$(cat "$work/plan" "$0" | sha256sum | cut -c-16)
fi

root=$work/root
for dir in bin lib lib64 sbin; do
	mkdir -p "$root/usr/$dir"
	ln -s "usr/$dir" "$root/$dir"
done
while IFS== read -r name version; do
	printf '%s\0' "$cache/debs/${name}_${version//:/%3a}"_*.deb
done <"$work/plan" | xargs -0 -n 1 sh -c '
	dpkg-deb --fsys-tarfile "$1" | tar -x -C "$0" --keep-directory-symlink --no-same-owner \
		--exclude="./usr/share/doc/*" --exclude="./usr/share/man/*" --exclude="./usr/share/locale/*" --exclude="./usr/share/info/*"' "$root"

# What the packages' scripts would have done.
ln -sf bash "$root/usr/bin/sh"
ln -sf gawk "$root/usr/bin/awk"
for program in "$root"/usr/lib/jvm/java-*/bin/{java,keytool} "$root"/usr/lib/postgresql/*/bin/{initdb,postgres,psql}; do
	ln -sf "${program#"$root"}" "$root/usr/bin/"
done
mkdir -p "$root/tmp" "$root/run/sshd" "$root/workspace" "$root/home/agent"
chmod 1777 "$root/tmp"
cp "$root/usr/share/base-passwd/passwd.master" "$root/etc/passwd"
cp "$root/usr/share/base-passwd/group.master" "$root/etc/group"
echo 'agent:x:1000:1000::/home/agent:/bin/bash' >>"$root/etc/passwd"
echo 'sshd:x:100:65534::/run/sshd:/usr/sbin/nologin' >>"$root/etc/passwd"
echo 'agent:x:1000:' >>"$root/etc/group"
printf 'root:*:1::::::\nagent:*:1::::::\nsshd:*:1::::::\n' >"$root/etc/shadow"
chown -R 1000:1000 "$root/home/agent"

tar -C "$root" -c . | docker import -c 'ENV PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin' - "$image" >&2
echo "$image"
