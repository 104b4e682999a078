#!/bin/bash
# install.sh VERSION DIR puts the program of a release into DIR, if its archive has the checksum that $SHA256
# names or, without it, the release's SHA256SUMS. $RELEASES is the address that the releases are below. Nothing of an archive
# with another checksum is unpacked.
set -euo pipefail

version=${1#v} dir=$2
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || { echo "install: $1 is not a version: give one as in 1.2.3" >&2; exit 2; }
releases=${RELEASES:-https://github.com/sandboxbash/sandboxbash/releases/download}

case $(uname -s) in
Linux) os=linux ;;
Darwin) os=darwin ;;
*) echo "install: there is no archive for $(uname -s) here: install the program in a step before, and leave out version" >&2; exit 2 ;;
esac
case $(uname -m) in
x86_64 | amd64) arch=amd64 ;;
aarch64 | arm64) arch=arm64 ;;
*) echo "install: there is no release for $(uname -m)" >&2; exit 2 ;;
esac

name=sandboxbash_${version}_${os}_${arch}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fetch() {
  curl --fail --silent --show-error --location --retry 3 --max-time 300 --output "$work/$1" "$releases/v$version/$1" ||
    { echo "install: $releases/v$version/$1 cannot be fetched" >&2; exit 1; }
}
fetch "$name.tar.gz"
if [ -n "${SHA256:-}" ]; then
  want=$SHA256 from="the input sha256"
else
  fetch SHA256SUMS
  want=$(awk -v file="$name.tar.gz" '$2 == file { print $1 }' "$work/SHA256SUMS") from="SHA256SUMS"
fi
if command -v sha256sum >/dev/null; then
  got=$(sha256sum <"$work/$name.tar.gz")
else
  got=$(shasum -a 256 <"$work/$name.tar.gz")
fi
got=${got%% *}
if [ -z "$want" ] || [ "$got" != "$want" ]; then
  echo "install: $name.tar.gz has the checksum $got, and $from says ${want:-nothing of it}: it is not installed" >&2
  exit 1
fi
mkdir -p "$dir"
tar -xzf "$work/$name.tar.gz" -C "$work" "$name/sandboxbash"
install -m 755 "$work/$name/sandboxbash" "$dir/sandboxbash"
"$dir/sandboxbash" version
