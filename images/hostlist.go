package images

import (
	"slices"
	"strings"
)

// programs are the programs that a snapshot takes if this machine has them. Compilers,
// ssh and package managers stay out: the image should be small, and a session has no
// network by default.
var programs = strings.Fields(`
	bash sh dash ash busybox
	[ arch b2sum base32 base64 basename basenc cat chgrp chmod chown chroot cksum comm cp csplit
	cut date dd df dir dircolors dirname du echo env expand expr factor false fmt fold groups head
	hostid id install join link ln logname ls md5sum mkdir mkfifo mknod mktemp mv nice nl nohup
	nproc numfmt od paste pathchk pinky pr printenv printf ptx pwd readlink realpath rm rmdir runcon
	seq sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf sleep sort split stat stdbuf stty
	sum sync tac tail tee test timeout touch tr true truncate tsort tty uname unexpand uniq unlink
	users vdir wc who whoami yes
	grep egrep fgrep sed awk gawk mawk nawk find xargs diff diff3 cmp sdiff patch ed bc dc
	tar gzip gunzip zcat zgrep xz unxz xzcat bzip2 bunzip2 bzcat zstd unzstd zstdcat lz4 zip unzip
	cpio less more file which xxd hexdump tree rsync
	ps pgrep pkill kill top free uptime vmstat watch pidof pmap w killall fuser lsof strace
	setsid flock script getopt lscpu rev column col cal ionice taskset mountpoint nsenter unshare
	logger renice prlimit uuidgen look namei whereis lsblk findmnt mount dmesg
	git perl python3 curl wget openssl make jq sqlite3 hostname ip ss ping getent locale iconv
	localedef getconf ldd ldconfig tput clear reset infocmp tic tset nano run-parts tempfile
	envsubst m4 shasum
`)

// searchDirs are searched for programs before PATH: what a user puts into PATH before
// them is often a wrapper that works in the user's own home only.
var searchDirs = []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin"}

// dataTrees hold data that programs need and that their package lists do not name:
// time zones, terminals, one locale, public certificates.
var dataTrees = []string{
	"/usr/share/zoneinfo",
	"/lib/terminfo", "/usr/lib/terminfo", "/usr/share/terminfo",
	"/usr/lib/locale/C.utf8", "/usr/lib/locale/C.UTF-8",
	"/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf", "/usr/lib/ssl",
	"/etc/pki/tls/certs", "/etc/pki/tls/cert.pem", "/etc/pki/tls/openssl.cnf", "/etc/pki/ca-trust/extracted/pem",
	"/usr/share/misc", "/usr/share/file", "/usr/lib/file", "/etc/magic",
	"/usr/share/awk", "/usr/share/git-core", "/usr/share/tabset",
	"/usr/lib/os-release", "/etc/os-release", "/etc/services", "/etc/protocols",
}

// libraryData are in the directory of the C library and are loaded by name at run time.
var libraryData = []string{
	"gconv", "ossl-modules", "engines-3", "libgcc_s.so.1", "coreutils", "gawk",
	"libnss_files.so.2", "libnss_dns.so.2",
}

// allowed are the prefixes of the paths that a snapshot may take files from. Every other
// path stays out, /root, /home and /var among them, even if a link leads there.
var allowed = []string{
	"/usr/", "/bin/", "/sbin/", "/lib/", "/lib32/", "/lib64/", "/libx32/", "/opt/", "/nix/store/", "/gnu/store/",
	"/etc/alternatives/", "/etc/ssl/certs/", "/etc/ssl/cert.pem/", "/etc/ssl/openssl.cnf/", "/etc/terminfo/",
	"/etc/pki/tls/certs/", "/etc/pki/tls/cert.pem/", "/etc/pki/tls/openssl.cnf/", "/etc/pki/ca-trust/extracted/pem/",
	"/etc/os-release/", "/etc/services/", "/etc/protocols/", "/etc/magic/",
}

// unwanted are parts of allowed paths that a sandbox does not need or that may hold
// private data. Each has slashes around it.
var unwanted = []string{
	"/usr/share/doc/", "/usr/share/man/", "/usr/share/info/", "/usr/share/locale/", "/usr/share/lintian/",
	"/usr/share/bug/", "/usr/share/doc-base/", "/usr/share/bash-completion/", "/usr/share/zsh/",
	"/usr/share/zoneinfo/right/", "/usr/share/zoneinfo/posix/", "/usr/share/applications/", "/usr/share/icons/",
	"/usr/share/pixmaps/", "/usr/share/menu/", "/usr/share/gitweb/", "/usr/share/polkit-1/", "/usr/share/initramfs-tools/",
	"/usr/lib/systemd/", "/lib/systemd/", "/lib/udev/", "/usr/lib/udev/", "/lib/modules/", "/usr/src/", "/usr/include/",
	"/usr/lib/ssl/private/", "/site-packages/", "/dist-packages/", "/usr/share/perl5/Debian/", "/usr/share/gdb/",
	"/usr/share/gcc/",
}

// unwantedPython are parts of python's own library, of any version.
var unwantedPython = []string{"/test/", "/tests/", "/idlelib/", "/ensurepip/", "/lib2to3/", "/turtledemo/"}

// unwantedSuffixes are of files for building, and of documentation among code.
var unwantedSuffixes = []string{".a", ".o", ".h", ".pod", ".la"}

// permitted reports whether a snapshot may hold the path.
func permitted(path string) bool {
	slashed := path + "/"
	contains := func(part string) bool { return strings.Contains(slashed, part) }
	if slices.ContainsFunc(unwanted, contains) {
		return false
	}
	if strings.Contains(slashed, "/lib/python3") && slices.ContainsFunc(unwantedPython, contains) {
		return false
	}
	if slices.ContainsFunc(unwantedSuffixes, func(s string) bool { return strings.HasSuffix(path, s) }) {
		return false
	}
	return slices.ContainsFunc(allowed, func(a string) bool { return strings.HasPrefix(slashed, a) })
}
