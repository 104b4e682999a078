#!/usr/bin/env bash
# guest.sh SHARE COMMAND…: runs a command as root in a guest, a Debian of its own with systemd, Docker and Podman on
# cgroups of version 2, and ends with its exit status. The guest sees one directory of this machine, SHARE, at
# /share, and has no network.
#
# The guest is user-mode Linux: its kernel is an ordinary process, which needs no virtualisation by the
# processor. It has one processor and is slow where it makes system calls: what it shows of speed are ratios.
#
# The first call makes the guest's disk, of about 1.2 GB, out of Debian's packages, in the user's cache
# directory (LANES_CACHE names another one). Later ones write into a copy that is gone when they end.
set -euo pipefail

packages=systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd # what boots
packages+=,docker.io,docker-cli,podman,crun                         # engines
packages+=,uidmap,slirp4netns,passt,fuse-overlayfs                  # for those without root
packages+=,user-mode-linux                                          # the kernel
packages+=,git,make,gcc,libc6-dev,python3-minimal,curl,tmux,less,vim-tiny,jq,busybox-static,musl-tools
packages+=,ca-certificates,iproute2,iptables,nftables,kmod,procps,ntfs-3g
suite=sid
memory=6G
limit=${LANES_LIMIT:-25m} # for one call, the making of the disk apart

share=$(realpath "$1")
shift
cache=${LANES_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sandboxbash-test-lanes}
made=$cache/guest-$(sha256sum "${BASH_SOURCE[0]}" | cut -c1-12)

say() { printf 'guest: %s\n' "$*" >&2; }

[ "$(id -u)" = 0 ] || { say "it takes root, to mount its own file systems: sudo $0"; exit 2; }
for program in mmdebstrap mke2fs unshare; do
	command -v "$program" >/dev/null || { say "there is no $program: apt-get install mmdebstrap e2fsprogs util-linux"; exit 2; }
done

# build makes the disk and, in boot, the kernel with the libraries that it needs: a newer C library than this
# machine may have.
build() {
	local root=$1/root
	say "making the guest out of Debian's packages (once: 2 minutes)"
	# A mirror that is some weeks old serves as well: its signatures are checked, its age is not.
	mmdebstrap --quiet --variant=apt --include="$packages" --aptopt='Acquire::Check-Valid-Until "false"' \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' "$suite" "$root" http://deb.debian.org/debian
	mkdir -p "$root/share" "$root/etc/docker" "$root/usr/lib/modules"
	ln -s "$(cd "$root/usr/lib/modules" && echo ../uml/modules/*)" "$root/usr/lib/modules/"
	echo guest >"$root/etc/hostname"
	# The guest's kernel has no tables of iptables, and no machine to reach.
	echo '{"bridge": "none", "iptables": false, "ip6tables": false, "ip-forward": false}' >"$root/etc/docker/daemon.json"
	cat >"$root/etc/systemd/system/lane.service" <<-'UNIT'
		[Unit]
		After=docker.service
		[Service]
		Type=oneshot
		ExecStartPre=/usr/bin/mount -t hostfs -o hostfs=/share none /share
		ExecStart=/bin/bash -lc ". /share/command >/share/output 2>&1; echo $$? >/share/status"
		ExecStopPost=/usr/bin/systemctl poweroff --force
		[Install]
		WantedBy=multi-user.target
	UNIT
	ln -s ../lane.service "$root/etc/systemd/system/multi-user.target.wants/"
	mkdir -p "$1/boot"/{dev,proc,share,tmp}
	local file
	for file in /usr/bin/linux.uml $(chroot "$root" ldd /usr/bin/linux.uml | grep -o '/[^ ]*'); do
		mkdir -p "$1/boot$(dirname "$file")"
		cp -L "$root$file" "$1/boot$file"
	done
	chroot "$root" dpkg-query --show docker.io containerd runc podman crun systemd user-mode-linux >"$1/versions"
	mke2fs -q -F -t ext4 -O ^has_journal -d "$root" "$1/disk" 32G
	rm -rf "$root"
}

if [ ! -e "$made" ]; then
	mkdir -p "$cache"
	new=$(mktemp -d "$cache/new-XXXXXX")
	chmod 755 "$new" # a user of apt reads there
	trap 'rm -rf "$new"' EXIT
	build "$new"
	mv -T "$new" "$made"
	trap - EXIT
fi
sed 's/^/guest: /' "$made/versions" >&2

{
	echo 'export HOME=/root TMPDIR=/var/tmp; cd /share'
	printf '%q ' "$@"
} >"$share/command"
rm -f "$share/status" "$share/output"
: >"$share/output"
written=$(mktemp -d "$cache/run-XXXXXX")
trap 'rm -rf "$written"' EXIT

# boot runs the kernel in a file system of its own. All of it ends with this script: --kill-child.
boot() {
	# shellcheck disable=SC2016 # the inner shell expands it
	exec timeout --kill-after=10 "$limit" unshare --mount --pid --fork --kill-child --propagation private bash -c '
		cd "$1"
		mount --bind boot boot
		mount -t proc proc boot/proc
		mount --rbind /dev boot/dev
		mount -t tmpfs -o exec,size=8G none boot/tmp
		mkdir boot/tmp/written
		mount --bind "$3" boot/tmp/written
		touch boot/tmp/disk
		mount --bind disk boot/tmp/disk
		mount --bind "$2" boot/share
		HOME=/tmp TMPDIR=/tmp chroot boot /usr/bin/linux.uml mem="$4" ubd0=/tmp/written/blocks,/tmp/disk root=/dev/ubda rw \
			con0=null,fd:1 con=null ssl=null seccomp=on quiet systemd.show_status=false
		exit 0 # what the kernel ends with says nothing
	' guest "$made" "$share" "$written" "$memory" </dev/null >"$share/console" 2>&1
}
boot &
tail --follow --lines=+1 --pid=$! "$share/output"
wait $! || say "the guest was ended after $limit"
if [ ! -s "$share/status" ]; then
	tail -n 20 "$share/console" >&2
	say "the command did not come to its end; above is what the guest said last"
	exit 1
fi
exit "$(cat "$share/status")"
