package images

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/engine"
)

// project writes files below a directory of its own.
func project(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const feature = `{"id": "tool", "options": {"version": {"type": "string", "default": "2"}, "with-x": {"type": "boolean", "default": false}}, "containerEnv": {"TOOL_HOME": "/opt/tool"}}`

// whole is a file with all that an image is made from, and with what has no effect.
const whole = `// a comment
{
	"name": "x", /* another */
	"image": "debian:stable-slim",
	"features": {
		"./second": {},
		"./first": {"version": "3", "with-x": true,},
	},
	"overrideFeatureInstallOrder": ["./first"],
	"containerEnv": {"A": "1 \"$x\" \\", "HOST": "${localEnv:HOME}", "P": "${containerEnv:PATH}:/opt/bin"},
	"remoteEnv": {"B": "2", "GONE": null},
	"onCreateCommand": "echo one; echo two",
	"postCreateCommand": {"deps": ["npm", "install", "it's"], "more": "make setup"},
	"remoteUser": "vscode",
	"initializeCommand": "touch /tmp/on-the-host",
	"mounts": ["source=/,target=/host,type=bind"],
	"customizations": {"vscode": {}},
}
`

func TestReadDevcontainer(t *testing.T) {
	t.Parallel()
	dir := project(t, map[string]string{
		".devcontainer/devcontainer.json":                  whole,
		".devcontainer/first/devcontainer-feature.json":    feature,
		".devcontainer/first/install.sh":                   "#!/bin/sh\necho first\n",
		".devcontainer/second/devcontainer-feature.json":   `{}`,
		".devcontainer/second/install.sh":                  "#!/bin/sh\necho second\n",
		".devcontainer/second/lib/more.sh":                 "more",
		".devcontainer/not-a-feature-and-thus-not-sent.sh": "",
	})
	file := devcontainerOf(dir)
	d, err := readDevcontainer(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := d.dockerfile("base:1")
	if err != nil {
		t.Fatal(err)
	}
	want := `FROM base:1
USER root
ENV TOOL_HOME="/opt/tool"
COPY feature0 /tmp/feature0
RUN cd /tmp/feature0 && set -a && . ./sandboxbash-options.env && set +a && chmod +x install.sh && ./install.sh && cd / && rm -rf /tmp/feature0
COPY feature1 /tmp/feature1
RUN cd /tmp/feature1 && set -a && . ./sandboxbash-options.env && set +a && chmod +x install.sh && ./install.sh && cd / && rm -rf /tmp/feature1
ENV A="1 \"\$x\" \\"
ENV P="${PATH}:/opt/bin"
ENV B="2"
COPY post-create /usr/local/bin/post-create
`
	if diff := cmp.Diff(want, text); diff != "" {
		t.Errorf("the Dockerfile is otherwise (-want +got):\n%s", diff)
	}
	var b bytes.Buffer
	if err := d.write(&b, text); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for tr := tar.NewReader(&b); ; {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		if hdr.Typeflag == tar.TypeReg {
			got[hdr.Name] = string(content)
		}
		if hdr.Name == PostCreate && hdr.Mode != 0o755 {
			t.Errorf("%s has mode %o", hdr.Name, hdr.Mode)
		}
	}
	user := "_REMOTE_USER='vscode'\n_REMOTE_USER_HOME='/home/vscode'\n_CONTAINER_USER='vscode'\n_CONTAINER_USER_HOME='/home/vscode'\n"
	if diff := cmp.Diff(map[string]string{
		"Dockerfile":                         text,
		"feature0/install.sh":                "#!/bin/sh\necho first\n",
		"feature0/devcontainer-feature.json": feature,
		"feature0/sandboxbash-options.env":   user + "VERSION='3'\nWITH_X='true'\n",
		"feature1/install.sh":                "#!/bin/sh\necho second\n",
		"feature1/devcontainer-feature.json": `{}`,
		"feature1/lib/more.sh":               "more",
		"feature1/sandboxbash-options.env":   user,
		PostCreate: "#!/bin/sh\n# Made from devcontainer.json. It runs in the workspace, as the session's user.\nset -e\n" +
			"\n# onCreateCommand\necho one; echo two\n\n# postCreateCommand\n'npm' 'install' 'it'\\''s'\nmake setup\n",
	}, got); diff != "" {
		t.Errorf("the context is otherwise (-want +got):\n%s", diff)
	}
	notes := strings.Join(d.notes, "\n")
	for _, want := range []string{
		"these fields have no effect: customizations, initializeCommand, mounts",
		"containerEnv: left out, because the values are this machine's or of the container that runs: HOST (",
		"remoteEnv: left out, because the values are this machine's or of the container that runs: GONE (",
		"the user vscode is only that of the features' installation",
		"`sandboxbash session exec -- post-create`",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes are %q; want %q in them", notes, want)
		}
	}
}

// What cannot be made is an error that names the place, not an image that lacks it.
func TestDevcontainerErrors(t *testing.T) {
	t.Parallel()
	with := map[string]string{"f/install.sh": "", "f/devcontainer-feature.json": feature, "bare/x": "", "unfit/install.sh": "", "unfit/devcontainer-feature.json": `{"containerEnv": {"A": "${localEnv:A}"}}`}
	for _, row := range []struct{ text, want string }{
		{`{`, "devcontainer.json"},
		{`[]`, "not a JSON object"},
		{`{}`, "neither an image nor a build.dockerfile"},
		{`{"image": 7}`, "image: json"},
		{`{"image": "a", "build": {"dockerfile": "Dockerfile"}}`, "leave one of them out"},
		{`{"build": {"context": "."}}`, "build has no dockerfile"},
		{`{"dockerComposeFile": "x.yml", "service": "a"}`, "several containers cannot be made"},
		{`{"image": "a", "features": {"ghcr.io/devcontainers/features/node:1": {}}}`, "features: ghcr.io/devcontainers/features/node:1: it comes from a registry"},
		{`{"image": "a", "features": {"./../f": {}}}`, "comes from a registry"},
		{`{"image": "a", "features": {"./bare": {}}}`, "has no install.sh"},
		{`{"image": "a", "features": {"./unfit": {}}}`, `containerEnv: ["A"]`},
		{`{"image": "a", "features": {"./f": {"release": "3"}}}`, "no option release; its options are version, with-x"},
		{`{"image": "a", "features": {"./f": 7}}`, "its options are not an object"},
		{`{"image": "a", "containerEnv": {"A B": "x"}}`, `containerEnv: "A B" is not the name of a variable`},
		{`{"image": "a", "containerEnv": {"A": "x\ny"}}`, "more than one line"},
		{`{"image": "a", "postCreateCommand": 7}`, "postCreateCommand: it is not text"},
		{`{"image": "a", "postCreateCommand": {"x": 7}}`, "postCreateCommand: x: it is not text"},
		{`{"image": "a", "postCreateCommand": "a\u0000"}`, "NUL"},
		{`{"image": "a", "postCreateCommand": "echo ${localEnv:TOKEN}"}`, "${localEnv:TOKEN} is not known in a session"},
		{`{"image": "a", "postCreateCommand": "cd ${containerWorkspaceFolder}"}`, "is not known in a session"},
	} {
		with["devcontainer.json"] = row.text
		dir := project(t, with)
		if _, err := readDevcontainer(filepath.Join(dir, "devcontainer.json")); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v; want %q", row.text, err, row.want)
		}
	}
	for _, text := range []string{`{"image": "a", "postCreateCommand": "echo ${HOME} $HOME"}`, `{"image": "a", "features": {"./f": "3"}}`, "\uFEFF{\"image\": \"a\"}", `{"dockerFile": "Dockerfile", "context": ".."}`} {
		with["devcontainer.json"] = text
		dir := project(t, with)
		if _, err := readDevcontainer(filepath.Join(dir, "devcontainer.json")); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A Dockerfile in the directory comes first: it was what was built before.
func TestDevcontainerOf(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		files []string
		arg   string
		want  string
	}{
		{[]string{"devcontainer.json"}, "", "devcontainer.json"},
		{[]string{".devcontainer/devcontainer.json", "devcontainer.json"}, "", ".devcontainer/devcontainer.json"},
		{[]string{".devcontainer.json"}, "", ".devcontainer.json"},
		{[]string{".devcontainer/devcontainer.json", "Dockerfile"}, "", ""},
		{[]string{".devcontainer/devcontainer.json", "Dockerfile"}, ".devcontainer/devcontainer.json", ".devcontainer/devcontainer.json"},
		{[]string{"Dockerfile"}, "", ""},
		{[]string{"x"}, "", ""},
		{[]string{"x"}, "gone.json", ""},
	} {
		files := map[string]string{}
		for _, name := range row.files {
			files[name] = "{}"
		}
		dir := project(t, files)
		want := ""
		if row.want != "" {
			want = filepath.Join(dir, filepath.FromSlash(row.want))
		}
		if got := devcontainerOf(filepath.Join(dir, filepath.FromSlash(row.arg))); got != want {
			t.Errorf("%q: devcontainerOf(%s) = %s; want %s", row.files, row.arg, got, want)
		}
	}
}

func TestOptionVariable(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"version": "VERSION", "with-x": "WITH_X", "2nd_one": "_ND_ONE", "a.b c": "A_B_C"} {
		if got := optionVariable(name); got != want {
			t.Errorf("optionVariable(%s) = %s; want %s", name, got, want)
		}
	}
}

// The Dockerfile that the file names is built with its arguments, and what comes on top of it in a second build.
func TestBuildDevcontainer(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		".devcontainer/Dockerfile": "FROM scratch\n", "main.go": "package main\n", ".dockerignore": "*\n",
		".devcontainer/f/install.sh": "", ".devcontainer/f/devcontainer-feature.json": "{}",
	}
	const source = `"build": {"dockerfile": "Dockerfile", "context": "..", "target": "dev", "args": {"A": "1", "B": "2"}}, "runArgs": []`
	for _, row := range []struct {
		name, text string
		want       engine.Build // the last one
	}{
		{"alone", "{" + source + "}", engine.Build{Dockerfile: ".devcontainer/Dockerfile", Target: "dev", Args: map[string]string{"A": "1", "B": "3"}, Ref: "x:1"}},
		{"with a feature", "{" + source + `, "features": {"./f": {}}}`, engine.Build{Ref: "x:1"}},
		{"an image", `{"image": "debian:12", "containerEnv": {"A": "1"}, "runArgs": []}`, engine.Build{Ref: "x:1"}},
	} {
		files[".devcontainer/devcontainer.json"] = row.text
		dir := project(t, files)
		eng := newFake()
		var notes []string
		opts := BuildOptions{Ref: "x:1", Args: map[string]string{"B": "3"}, Network: "none", Note: func(text string) { notes = append(notes, text) }}
		if _, err := resolver(t, eng).Build(t.Context(), filepath.Join(dir, ".devcontainer", "devcontainer.json"), opts, nil); err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
		row.want.Labels, row.want.Network = imageLabels(), "none"
		if diff := cmp.Diff(row.want, eng.built); diff != "" {
			t.Errorf("%s: the last build is otherwise (-want +got):\n%s", row.name, diff)
		}
		if len(notes) != 1 || !strings.Contains(notes[0], "no effect: runArgs") {
			t.Errorf("%s: the notes are %q", row.name, notes)
		}
	}
	for text, want := range map[string]string{
		`{"build": {"dockerfile": "../Dockerfile"}}`:                                  "is not in the context",
		`{"build": {"dockerfile": "gone"}}`:                                           "there is no file",
		`{"build": {"dockerfile": "Dockerfile", "args": {"A": "${localEnv:TOKEN}"}}}`: "--build-arg A=VALUE",
		`{"image": "a\nRUN x", "containerEnv": {"A": "1"}}`:                           "not a valid reference",
	} {
		files[".devcontainer/devcontainer.json"] = text
		_, err := resolver(t, newFake()).Build(t.Context(), project(t, files), BuildOptions{}, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}
