package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// script stands for the program: it prints its arguments, and the help of sandboxbash, run and image ls.
const script = `#!/bin/sh
case "$*" in
--help) printf 'Usage: sandboxbash COMMAND [flags]\n\nRun it.\n\nCommands:\n  run    Run -x\n  image  Manage\n  help   Help\n\nTopics:\n  flags  The flags\n' ;;
"run --help") printf 'Usage: sandboxbash run COMMAND\n\nRun one.\n\nExamples:\n  sandboxbash run x\n\nIt is\n.hidden and \\n.\n' ;;
"image --help") printf 'Usage: sandboxbash image COMMAND\n\nManage.\n\nCommands:\n  ls  List\n' ;;
"image ls --help") printf 'Usage: sandboxbash image ls\n\nList.\n' ;;
"help status") printf 'Exit status:\n  0  well\n' ;;
*) echo "$@" ;;
esac
`

// made is a release of a program that is none: a script in its place.
func made(t *testing.T, platforms ...string) *release {
	t.Helper()
	r := &release{version: "1.2.3-rc.1", out: t.TempDir(), work: t.TempDir(), time: time.Unix(1700000000, 0).UTC()}
	for _, p := range append(platforms, runtime.GOOS+"-"+runtime.GOARCH) {
		if err := os.WriteFile(filepath.Join(r.work, p), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func (r *release) of(goos, arch string) build {
	return build{os: goos, arch: arch, binary: filepath.Join(r.work, goos+"-"+arch)}
}

// twice makes a file of two releases, which must be equal, and returns it.
func twice(t *testing.T, name string, do func(*release, build) error, goos string) []byte {
	t.Helper()
	var first []byte
	for range 2 {
		r := made(t, goos+"-arm64")
		if err := do(r, r.of(goos, "arm64")); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(r.out, name))
		if err != nil {
			t.Fatal(err)
		}
		if first != nil && !bytes.Equal(first, got) {
			t.Errorf("%s has other bytes the second time", name)
		}
		first = got
	}
	return first
}

type entry struct {
	mode    int64
	content string
}

func tarred(t *testing.T, r io.Reader) map[string]entry {
	t.Helper()
	files := map[string]entry{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() != 1700000000 {
			t.Errorf("%s is of %d:%d and %v; want uid 0 and the commit's time", h.Name, h.Uid, h.Gid, h.ModTime)
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = entry{h.Mode, string(content)}
	}
}

func TestArchive(t *testing.T) {
	t.Chdir("../..")
	zr, err := gzip.NewReader(bytes.NewReader(twice(t, "sandboxbash_1.2.3-rc.1_linux_arm64.tar.gz", (*release).archive, "linux")))
	if err != nil {
		t.Fatal(err)
	}
	files := tarred(t, zr)
	const dir = "sandboxbash_1.2.3-rc.1_linux_arm64/"
	if files[dir+"docs/usage.md"].mode != 0o644 || files[dir+"man/man1/sandboxbash-image-ls.1"].content == "" || files[dir+"docs/adr/README.md"].content == "" {
		t.Errorf("the archive holds %v; want docs and pages of the manual", slices.Sorted(maps.Keys(files)))
	}
	if files[dir+"sandboxbash"].mode != 0o755 || files[dir+"LICENSE"].mode != 0o644 || !strings.Contains(files[dir+"LICENSE"].content, "Apache License") {
		t.Errorf("the archive holds %v", files)
	}
	packed := twice(t, "sandboxbash_1.2.3-rc.1_windows_arm64.zip", (*release).archive, "windows")
	z, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil || len(z.File) != len(files) || z.File[0].Name != "sandboxbash_1.2.3-rc.1_windows_arm64/sandboxbash.exe" {
		t.Errorf("the archive for windows is %v, %v", z, err)
	}
}

// A page of the manual is a command's help, with what roff would obey made plain.
func TestManual(t *testing.T) {
	pages, err := made(t).manual()
	if err != nil {
		t.Fatal(err)
	}
	text := map[string]string{}
	for _, p := range pages {
		text[strings.TrimPrefix(p.name, "man/man1/")] = string(p.content)
	}
	if got, want := slices.Sorted(maps.Keys(text)), []string{"sandboxbash-image-ls.1", "sandboxbash-image.1", "sandboxbash-run.1", "sandboxbash.1"}; !slices.Equal(got, want) {
		t.Errorf("the pages are %q; want %q", got, want)
	}
	for name, wants := range map[string][]string{
		"sandboxbash.1":     {".TH SANDBOXBASH 1 2023-11-14 \"sandboxbash 1.2.3-rc.1\"\n", "sandboxbash \\- Run it\n", ".SH COMMANDS\n", "Run \\-x", ".SH EXIT STATUS\n.nf\n.in 0\n  0  well\n.fi\n"},
		"sandboxbash-run.1": {".SH SYNOPSIS\n.nf\nsandboxbash run COMMAND\n.fi\n", ".SH EXAMPLES\n", ".SH DESCRIPTION\n", "It is\n\\&.hidden and \\en.\n"},
	} {
		for _, want := range wants {
			if !strings.Contains(text[name], want) {
				t.Errorf("%s has no %q:\n%s", name, want, text[name])
			}
		}
	}
}

// An image's parts are named by their digests, as docker load checks.
func TestImage(t *testing.T) {
	files := tarred(t, bytes.NewReader(twice(t, "sandboxbash_1.2.3-rc.1_image_arm64.tar", (*release).image, "linux")))
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal([]byte(files["manifest.json"].content), &manifest); err != nil || len(manifest) != 1 || len(manifest[0].Layers) != 1 {
		t.Fatalf("the manifest is %+v, %v", manifest, err)
	}
	m := manifest[0]
	layer, config := files[m.Layers[0]].content, files[m.Config].content
	var c struct {
		Architecture string
		Rootfs       struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal([]byte(config), &c); err != nil || c.Architecture != "arm64" || !slices.Equal(c.Rootfs.DiffIDs, []string{"sha256:" + digest([]byte(layer))}) {
		t.Errorf("the configuration is %s, %v; want arm64 and the layer's digest", config, err)
	}
	if m.Config != digest([]byte(config))+".json" || !slices.Equal(m.RepoTags, []string{"sandboxbash:1.2.3-rc.1"}) {
		t.Errorf("the manifest is %+v", m)
	}
	if program := tarred(t, strings.NewReader(layer))["usr/bin/sandboxbash"]; program.mode != 0o755 || program.content == "" {
		t.Errorf("the program in the image is %+v", program)
	}
}

func TestDebian(t *testing.T) {
	t.Chdir("../..")
	const name = "sandboxbash_1.2.3-rc.1_arm64.deb"
	pkg := twice(t, name, (*release).debian, "linux")
	if !bytes.HasPrefix(pkg, []byte("!<arch>\ndebian-binary")) {
		t.Errorf("the package begins with %q", pkg[:20])
	}
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		return // the rest is read with Debian's own program
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, pkg, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-ec", `dpkg-deb --field "$0" Version Architecture; dpkg-deb --contents "$0"`, file).CombinedOutput()
	for _, want := range []string{"Version: 1.2.3~rc.1\n", "Architecture: arm64\n", "-rwxr-xr-x root/root", " ./usr/bin/sandboxbash\n", "/usr/share/doc/sandboxbash/copyright\n", "/usr/share/doc/sandboxbash/docs/usage.md\n", "/usr/share/man/man1/sandboxbash-run.1.gz\n", completions[1].at} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("the package does not show %q, %v:\n%s", want, err, out)
		}
	}
}

// bill is the bill of materials of this test's own program.
func bill(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := made(t)
	if err := r.sbom(build{os: "linux", arch: "amd64", binary: self}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(r.out, "sandboxbash_1.2.3-rc.1_linux_amd64.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The bill of materials of this test names what this test is made of.
func TestSBOM(t *testing.T) {
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(strings.NewReader(bill(t)), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range *bom.Components {
		if names = append(names, c.Name); c.Version == "" || c.PackageURL == "" {
			t.Errorf("%+v has no version or address", c)
		}
	}
	for _, want := range []string{"std", "github.com/goreleaser/nfpm/v2", "github.com/CycloneDX/cyclonedx-go"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not among %q", want, names)
		}
	}
}

// The bill is what the schema of its format wants. The schemas come with the
// library that writes it.
func TestSBOMSchema(t *testing.T) {
	text := bill(t)
	schema := bomSchema(t, bomVersion)
	for _, test := range []struct {
		name, old, new string
		valid          bool
	}{
		{"as it is", "", "", true},
		{"with a component of no type that there is", `"type": "library"`, `"type": "lib"`, false},
		{"with a component without a name", `"name": "std",`, "", false},
	} {
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(strings.Replace(text, test.old, test.new, 1)))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(doc); (err == nil) != test.valid {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func bomSchema(t *testing.T, version cdx.SpecVersion) *jsonschema.Schema {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	for _, name := range []string{"bom-" + version.String() + ".schema.json", "spdx.schema.json", "jsf-0.82.schemax.json"} {
		f, err := os.Open(filepath.Join(strings.TrimSpace(string(dir)), "schema", name))
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(f)
		_ = f.Close() // it was only read
		if err != nil {
			t.Fatal(err)
		}
		if err := c.AddResource("http://cyclonedx.org/schema/"+strings.Replace(name, "schemax", "schema", 1), doc); err != nil {
			t.Fatal(err)
		}
	}
	schema, err := c.Compile("http://cyclonedx.org/schema/bom-" + version.String() + ".schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// sha256sum reads the sums, and a directory of something else is not emptied.
func TestChecksums(t *testing.T) {
	r := made(t)
	if err := os.WriteFile(r.name("x"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.checksums(); err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(r.out, "SHA256SUMS"))
	// printf content | sha256sum
	if want := "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73  sandboxbash_1.2.3-rc.1_x\n"; err != nil || string(sums) != want {
		t.Errorf("SHA256SUMS = %q, %v; want %q", sums, err, want)
	}
	mine := filepath.Join(r.out, "mine")
	if err := os.WriteFile(mine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.empty(); err == nil {
		t.Error("a directory with another file was emptied")
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
}

func TestVersion(t *testing.T) {
	for _, version := range []string{"", "1.2", "1.2.3+meta", "main", "1.2.3 ", "1.2.3-a_b"} {
		r := release{version: version, out: t.TempDir()}
		if err := r.run(nil); err == nil || !strings.Contains(err.Error(), "is not a version") {
			t.Errorf("run(%q) = %v; want that it is not a version", version, err)
		}
	}
}
