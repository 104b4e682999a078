package images

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// askTime is how long a program has to say where its data lies.
const askTime = 5 * time.Second

// collector puts into a tree the listed programs, what their packages brought,
// the data that they say they use, and the libraries of all of it.
type collector struct {
	tree    *tree
	linker  linker
	scanned map[string]bool
	libDir  string // where the C library is
}

func (c *collector) collect(ctx context.Context) error {
	paths := findPrograms()
	if _, ok := paths["bash"]; !ok {
		return &HostError{Reason: "there is no bash on this machine"}
	}
	answers := make(chan []string, 1)
	go func() { answers <- dataDirs(ctx, paths) }()
	wanted := make(map[string]bool)
	for _, p := range paths {
		wanted[p] = true
		if target := c.tree.add(p); target != "" {
			wanted[target] = true
		}
	}
	for _, file := range packageFiles("/var/lib/dpkg/info", wanted) {
		c.tree.add(file)
	}
	for _, path := range dataTrees {
		c.tree.addAll(path)
	}
	for _, dir := range <-answers {
		c.tree.addAll(dir)
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	c.closure()
	for _, name := range libraryData {
		if c.libDir != "" {
			c.tree.addAll(filepath.Join(c.libDir, name))
		}
	}
	c.closure()
	return nil
}

// findPrograms returns the path of every listed program that is here.
func findPrograms() map[string]string {
	dirs := append(slices.Clip(searchDirs), filepath.SplitList(os.Getenv("PATH"))...)
	paths := make(map[string]string)
	for _, name := range programs {
		for _, dir := range dirs {
			path := filepath.Join(dir, name)
			if !filepath.IsAbs(path) || !permitted(path) {
				continue
			}
			target, err := filepath.EvalSymlinks(path)
			if err != nil || !permitted(target) {
				continue
			}
			if info, err := os.Stat(target); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				paths[name] = path
				break
			}
		}
	}
	return paths
}

// packageFiles returns the files of the dpkg packages that any wanted path
// belongs to. dpkg may know a path by its place before /usr was merged.
func packageFiles(infoDir string, wanted map[string]bool) []string {
	lists, _ := filepath.Glob(filepath.Join(infoDir, "*.list")) // the pattern is well-formed
	var files []string
	for _, list := range lists {
		data, err := os.ReadFile(list)
		if err != nil || !ownsAny(data, wanted) {
			continue
		}
		for line := range strings.Lines(string(data)) {
			path := strings.TrimSuffix(line, "\n")
			if permitted(path) {
				files = append(files, path)
			}
		}
	}
	return files
}

func ownsAny(list []byte, wanted map[string]bool) bool {
	if !bytes.Contains(list, []byte("bin/")) {
		return false
	}
	for line := range bytes.Lines(list) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		if !bytes.Contains(line, []byte("bin/")) {
			continue
		}
		if wanted[string(line)] || wanted["/usr"+string(line)] {
			return true
		}
	}
	return false
}

// question asks a program for the directories that it takes data from, one a
// line.
type question struct {
	program string
	args    []string
}

var questions = []question{
	{"git", []string{"--exec-path"}},
	{"perl", []string{"-e", `print "$_\n" for @INC`}},
	{"python3", []string{"-I", "-S", "-c", "import sys\nfor p in sys.path: print(p)"}},
}

// dataDirs asks all programs at once, in an empty environment: the user's settings must
// not add directories.
func dataDirs(ctx context.Context, paths map[string]string) []string {
	ctx, cancel := context.WithTimeoutCause(ctx, askTime, errors.New("a program did not say where its data lies"))
	defer cancel()
	answers := make([][]string, len(questions))
	var wg sync.WaitGroup
	for i, q := range questions {
		path, ok := paths[q.program]
		if !ok {
			continue
		}
		wg.Go(func() {
			cmd := exec.CommandContext(ctx, path, q.args...)
			cmd.Dir, cmd.Env, cmd.WaitDelay = "/", []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}, time.Second
			out, err := cmd.Output()
			if err != nil {
				return // the program does not work here either
			}
			answers[i] = absolute(out)
		})
	}
	wg.Wait()
	var dirs []string
	for _, a := range answers {
		dirs = append(dirs, a...)
	}
	return dirs
}

func absolute(out []byte) []string {
	var dirs []string
	for sc := bufio.NewScanner(bytes.NewReader(out)); sc.Scan(); {
		dir := filepath.Clean(sc.Text())
		// What an administrator has put into /usr/local is not the program's.
		if filepath.IsAbs(dir) && permitted(dir) && (!strings.HasPrefix(dir, "/usr/local/lib/site") && !strings.HasPrefix(dir, "/usr/local/share/")) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// closure adds the libraries of every program and library in the tree, and
// theirs, until nothing is missing.
func (c *collector) closure() {
	if c.scanned == nil {
		c.scanned = make(map[string]bool)
	}
	var queue []string
	for path, e := range c.tree.entries {
		if e.mode.IsRegular() && !e.made && (e.mode&0o111 != 0 || strings.Contains(filepath.Base(path), ".so")) {
			queue = append(queue, path)
		}
	}
	for len(queue) > 0 {
		path := queue[0]
		queue = queue[1:]
		if c.scanned[path] {
			continue
		}
		c.scanned[path] = true
		libs, err := c.linker.libraries(path)
		if err != nil {
			continue // a damaged file does not run here either
		}
		for _, lib := range libs {
			if target := c.take(lib); target != "" {
				queue = append(queue, target)
			}
		}
	}
}

// take adds a library. If the dynamic linker would not look where it is, take also links
// to it from the directory of the C library.
func (c *collector) take(lib found) string {
	target := c.tree.add(lib.path)
	if target == "" {
		return ""
	}
	if lib.name == "libc.so.6" {
		c.libDir = filepath.Dir(target)
	}
	if !lib.direct && c.libDir != "" {
		at := filepath.Join(c.libDir, lib.name)
		if _, ok := c.tree.entries[at]; !ok {
			c.tree.link(at, lib.path)
		}
	}
	return target
}
