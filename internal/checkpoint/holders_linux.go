package checkpoint

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxbash/sandboxbash/internal/wire"
)

// processesOf lists the processes of a user, but for this one. /proc shows who owns them to everyone.
func processesOf(uid uint32) (pids []int) {
	if uid == 0 {
		return nil
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	list, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	for _, name := range list {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		status, err := os.ReadFile("/proc/" + name + "/status")
		if err != nil {
			continue
		}
		for line := range bytes.Lines(status) {
			if f := bytes.Fields(line); len(f) == 5 && string(f[0]) == "Uid:" {
				// The saved one: a runner's others are the user's for moments.
				if string(f[3]) == strconv.FormatUint(uint64(uid), 10) {
					pids = append(pids, pid)
				}
				break
			}
		}
	}
	return pids
}

// writtenFiles are the files that a process of the user maps or has open for writing: their content may change
// without their stamp. It must be called as the user.
func writtenFiles(uid uint32) map[[16]byte]bool {
	found := map[[16]byte]bool{}
	note := func(path string) {
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			found[key(&st)] = true
		}
	}
	for _, pid := range processesOf(uid) {
		at := "/proc/" + strconv.Itoa(pid)
		for _, fd := range entriesOf(at + "/fd") {
			info, err := os.ReadFile(at + "/fdinfo/" + fd)
			if err != nil {
				continue
			}
			for line := range bytes.Lines(info) {
				if flags, ok := bytes.CutPrefix(line, []byte("flags:")); ok {
					if n, err := strconv.ParseUint(string(bytes.TrimSpace(flags)), 8, 64); err == nil && n&unix.O_ACCMODE != unix.O_RDONLY {
						note(at + "/fd/" + fd)
					}
					break
				}
			}
		}
		maps, _ := os.ReadFile(at + "/maps")
		for line := range bytes.Lines(maps) {
			// An address, permissions, an offset, a device, an inode, a path: a shared mapping may be written to.
			if f := bytes.SplitN(bytes.TrimSpace(line), []byte(" "), 3); len(f) == 3 && len(f[1]) == 4 && f[1][3] == 's' {
				if i := bytes.IndexByte(line, '/'); i >= 0 {
					note(string(bytes.TrimSpace(line[i:])))
				}
			}
		}
	}
	return found
}

func entriesOf(dir string) []string {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	list, _ := d.Readdirnames(-1)
	return list
}

const (
	maxHolders     = 20
	maxHeldFiles   = 8
	maxHolderTitle = 200 // bytes
)

// holders lists the processes of the user that have something below a directory open. It must be called as the user. A
// process that cannot be looked into counts as one.
func holders(uid uint32, dir string) (all []wire.CheckpointHolder) {
	inside := func(path string) (string, bool) {
		path = strings.TrimSuffix(path, " (deleted)")
		if path == dir {
			return ".", true
		}
		return strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/")
	}
	for _, pid := range processesOf(uid) {
		if len(all) == maxHolders {
			break
		}
		at := "/proc/" + strconv.Itoa(pid)
		h := wire.CheckpointHolder{PID: pid, Command: title(at)}
		seen := map[string]bool{}
		look := func(link string) {
			target, err := os.Readlink(link)
			if name, ok := inside(target); err == nil && ok && !seen[name] && len(h.Files) < maxHeldFiles {
				seen[name] = true
				h.Files = append(h.Files, name)
			}
		}
		if _, err := os.Readlink(at + "/cwd"); os.IsPermission(err) {
			h.Files = append(h.Files, "?")
		}
		look(at + "/cwd")
		look(at + "/exe")
		for _, fd := range entriesOf(at + "/fd") {
			look(at + "/fd/" + fd)
		}
		maps, _ := os.ReadFile(at + "/maps")
		for line := range bytes.Lines(maps) {
			if i := bytes.IndexByte(line, '/'); i >= 0 {
				if name, ok := inside(string(bytes.TrimSpace(line[i:]))); ok && !seen[name] && len(h.Files) < maxHeldFiles {
					seen[name] = true
					h.Files = append(h.Files, name)
				}
			}
		}
		if len(h.Files) > 0 {
			all = append(all, h)
		}
	}
	return all
}

func title(at string) string {
	b, _ := os.ReadFile(at + "/cmdline")
	text := strings.ReplaceAll(strings.TrimRight(string(b), "\x00"), "\x00", " ")
	if text == "" {
		b, _ = os.ReadFile(at + "/comm")
		text = strings.TrimSpace(string(b))
	}
	if len(text) > maxHolderTitle {
		text = text[:maxHolderTitle]
	}
	return text
}
