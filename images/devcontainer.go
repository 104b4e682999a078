package images

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/moby/patternmatcher"
	"github.com/tailscale/hujson"

	"github.com/sandboxbash/sandboxbash/engine"
)

// devcontainerFiles are where a directory may have one, in the order of the specification.
var devcontainerFiles = []string{".devcontainer/devcontainer.json", ".devcontainer.json", "devcontainer.json"}

// PostCreate is the program of an image made from a devcontainer.json that runs its onCreateCommand,
// updateContentCommand and postCreateCommand. They are for the workspace, so that a session runs them.
const PostCreate = "post-create"

// devcontainerOf returns the devcontainer.json that the argument of Build stands for: the file itself, or
// that of a directory without a Dockerfile; "" for none.
func devcontainerOf(path string) string {
	if filepath.Ext(path) == ".json" && isFile(path) {
		return path
	}
	if _, err := os.Stat(filepath.Join(path, dockerfile)); err == nil {
		return ""
	}
	for _, name := range devcontainerFiles {
		if file := filepath.Join(path, filepath.FromSlash(name)); isFile(file) {
			return file
		}
	}
	return ""
}

// devcontainer is what an image is made from. Everything else of the file is about the container that
// another program would start.
type devcontainer struct {
	file     string
	image    string
	build    *devcontainerBuild // nil: there is an image
	features []devFeature
	env      []string // K=V, the values in the form of a Dockerfile
	after    string   // script of PostCreate; "" without commands
	user     string   // remoteUser, or else containerUser
	notes    []string
}

type devcontainerBuild struct {
	Dockerfile string            `json:"dockerfile"`
	Context    string            `json:"context"`
	Target     string            `json:"target"`
	Args       map[string]string `json:"args"`
}

// devFeature is a directory with an install.sh.
type devFeature struct {
	dir string
	env []string // K=V for install.sh
	set []string // K=V for the image, as env of a devcontainer
}

// jsonObject is the members of an object that were not read yet, and the file, for errors.
type jsonObject struct {
	file    string
	members map[string]json.RawMessage
	order   []string
}

// readJSONC reads a file of JSON with comments and trailing commas.
func readJSONC(file string) (*jsonObject, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if data, err = hujson.Standardize(bytes.TrimPrefix(data, []byte("\uFEFF"))); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return newObject(file, data)
}

func newObject(file string, data []byte) (*jsonObject, error) {
	o := &jsonObject{file: file, members: map[string]json.RawMessage{}}
	dec := json.NewDecoder(bytes.NewReader(data))
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return nil, fmt.Errorf("%s: it is not a JSON object", file)
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, fmt.Errorf("%s: %v: %w", file, name, err)
		}
		o.order = append(o.order, fmt.Sprint(name))
		o.members[fmt.Sprint(name)] = value
	}
	return o, nil
}

// take reads a member into v. One that is missing changes nothing.
func (o *jsonObject) take(name string, v any) error {
	raw, ok := o.members[name]
	if !ok {
		return nil
	}
	delete(o.members, name)
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%s: %s: %w", o.file, name, err)
	}
	return nil
}

func readDevcontainer(file string) (*devcontainer, error) {
	o, err := readJSONC(file)
	if err != nil {
		return nil, err
	}
	if _, ok := o.members["dockerComposeFile"]; ok {
		return nil, fmt.Errorf("%s: dockerComposeFile: several containers cannot be made; name an image, or a Dockerfile in build.dockerfile", file)
	}
	d := &devcontainer{file: file}
	steps := []func(*jsonObject) error{d.readSource, d.readUser, d.readEnv, d.readCommands, d.readFeatures}
	for _, step := range steps {
		if err := step(o); err != nil {
			return nil, err
		}
	}
	delete(o.members, "name")
	delete(o.members, "$schema")
	if rest := slices.Sorted(maps.Keys(o.members)); len(rest) > 0 {
		d.note("these fields have no effect: " + strings.Join(rest, ", "))
	}
	return d, nil
}

func (d *devcontainer) note(text string) {
	d.notes = append(d.notes, filepath.Base(d.file)+": "+text)
}

// readSource reads what the image is made from.
func (d *devcontainer) readSource(o *jsonObject) error {
	var old devcontainerBuild
	err := errors.Join(o.take("image", &d.image), o.take("build", &d.build), o.take("dockerFile", &old.Dockerfile), o.take("context", &old.Context))
	if err != nil {
		return err
	}
	if d.build == nil && old.Dockerfile != "" {
		d.build = &old
	}
	switch {
	case d.build == nil && d.image == "":
		return fmt.Errorf("%s: it names neither an image nor a build.dockerfile", d.file)
	case d.build != nil && d.image != "":
		return fmt.Errorf("%s: it names an image and a build: leave one of them out", d.file)
	case d.build != nil && d.build.Dockerfile == "":
		return fmt.Errorf("%s: build has no dockerfile", d.file)
	}
	return nil
}

func (d *devcontainer) readUser(o *jsonObject) error {
	var container string
	if err := errors.Join(o.take("remoteUser", &d.user), o.take("containerUser", &container)); err != nil {
		return err
	}
	if d.user == "" {
		d.user = container
	}
	if d.user != "" {
		d.note("the user " + d.user + " is only that of the features' installation: a session has a user of its own (--user)")
	}
	return nil
}

// readEnv reads the variables. Nothing of this machine's environment gets into an image: --env names what
// a session is to have of it.
func (d *devcontainer) readEnv(o *jsonObject) error {
	for _, member := range []string{"containerEnv", "remoteEnv"} {
		var env map[string]*string
		if err := o.take(member, &env); err != nil {
			return err
		}
		set, left, err := dockerEnv(env)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", d.file, member, err)
		}
		d.env = append(d.env, set...)
		if len(left) > 0 {
			d.note(member + ": left out, because the values are this machine's or of the container that runs: " + strings.Join(left, ", ") + " (--env NAME=VALUE sets one in a session)")
		}
	}
	return nil
}

var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	devVariable  = regexp.MustCompile(`\$\{([A-Za-z]+)(?::([^}]*))?\}`)
)

// dockerEnv returns variables as a Dockerfile's ENV takes them, sorted, and the names of those that are
// left out: unset ones, and those with a value that is not known when an image is made.
func dockerEnv(env map[string]*string) (set, left []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		value := env[name]
		switch {
		case !variableName.MatchString(name):
			return nil, nil, fmt.Errorf("%q is not the name of a variable", name)
		case value == nil:
			left = append(left, name)
			continue
		case strings.ContainsAny(*value, "\n\r\x00"):
			return nil, nil, fmt.Errorf("%s: a value cannot have more than one line", name)
		}
		if text, ok := dockerValue(*value); ok {
			set = append(set, name+"="+text)
		} else {
			left = append(left, name)
		}
	}
	return set, left, nil
}

// dockerValue quotes a value for ENV. ${containerEnv:NAME} is the image's variable; it reports false for
// other variables of a devcontainer.json.
func dockerValue(value string) (string, bool) {
	var b strings.Builder
	b.WriteByte('"')
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `\$`)
	at := 0
	for _, m := range devVariable.FindAllStringSubmatchIndex(value, -1) {
		if value[m[2]:m[3]] != "containerEnv" || m[4] < 0 || !variableName.MatchString(value[m[4]:m[5]]) {
			return "", false
		}
		b.WriteString(quote.Replace(value[at:m[0]]) + "${" + value[m[4]:m[5]] + "}")
		at = m[1]
	}
	b.WriteString(quote.Replace(value[at:]) + `"`)
	return b.String(), true
}

// readCommands makes the script of PostCreate. initializeCommand is for this machine, and is never run.
func (d *devcontainer) readCommands(o *jsonObject) error {
	for _, member := range []string{"onCreateCommand", "updateContentCommand", "postCreateCommand"} {
		raw, ok := o.members[member]
		if !ok || string(raw) == "null" {
			delete(o.members, member)
			continue
		}
		delete(o.members, member)
		lines, err := commandLines(raw)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", d.file, member, err)
		}
		d.after += "\n# " + member + "\n" + lines
	}
	if d.after != "" {
		d.after = "#!/bin/sh\n# Made from " + filepath.Base(d.file) + ". It runs in the workspace, as the session's user.\nset -e\n" + d.after
		d.note("its commands are for the workspace, and run in a session: `sandboxbash session exec -- " + PostCreate + "`")
	}
	return nil
}

// commandLines returns a command as lines of sh: text is a script, a list a program and its arguments, an
// object several commands with names, which run one after the other.
func commandLines(raw json.RawMessage) (string, error) {
	var text string
	var words []string
	switch {
	case json.Unmarshal(raw, &text) == nil:
	case json.Unmarshal(raw, &words) == nil:
		for i, word := range words {
			words[i] = shellQuoted(word)
		}
		text = strings.Join(words, " ")
	default:
		o, err := newObject("the command", raw)
		if err != nil {
			return "", errors.New("it is not text, a list of words or an object of commands")
		}
		var lines strings.Builder
		for _, name := range o.order {
			one, err := commandLines(o.members[name])
			if err != nil {
				return "", fmt.Errorf("%s: %w", name, err)
			}
			lines.WriteString(one)
		}
		return lines.String(), nil
	}
	if m := devVariable.FindStringSubmatch(text); m != nil && (m[2] != "" || strings.HasSuffix(m[1], "Folder") || strings.HasSuffix(m[1], "Basename")) {
		return "", fmt.Errorf("%s is not known in a session; write the path or the value", m[0])
	}
	if strings.Contains(text, "\x00") {
		return "", errors.New("it has a NUL byte")
	}
	return text + "\n", nil
}

// shellQuoted is a word as sh reads it.
func shellQuoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// readFeatures reads the features, in the order of the file or of overrideFeatureInstallOrder.
func (d *devcontainer) readFeatures(o *jsonObject) error {
	var raw json.RawMessage
	var first []string
	if err := errors.Join(o.take("features", &raw), o.take("overrideFeatureInstallOrder", &first)); err != nil || raw == nil {
		return err
	}
	all, err := newObject(d.file, raw)
	if err != nil {
		return fmt.Errorf("features: %w", err)
	}
	for _, id := range slices.Concat(first, all.order) {
		options, ok := all.members[id]
		if !ok {
			continue // it was taken before, or is not there
		}
		delete(all.members, id)
		f, err := d.readFeature(id, options)
		if err != nil {
			return fmt.Errorf("%s: features: %s: %w", d.file, id, err)
		}
		d.features = append(d.features, f)
	}
	return nil
}

func (d *devcontainer) readFeature(id string, given json.RawMessage) (devFeature, error) {
	if !strings.HasPrefix(id, "./") || !filepath.IsLocal(filepath.FromSlash(id)) {
		return devFeature{}, errors.New("it comes from a registry, which is not asked; put the feature's directory next to the file and name it ./NAME, or install what it brings in a Dockerfile")
	}
	f := devFeature{dir: filepath.Join(filepath.Dir(d.file), filepath.FromSlash(id))}
	if !isFile(filepath.Join(f.dir, "install.sh")) {
		return f, fmt.Errorf("%s has no install.sh", f.dir)
	}
	o, err := readJSONC(filepath.Join(f.dir, "devcontainer-feature.json"))
	if err != nil {
		return f, err
	}
	var known map[string]struct{ Default any }
	var env map[string]*string
	if err := errors.Join(o.take("options", &known), o.take("containerEnv", &env)); err != nil {
		return f, err
	}
	options := map[string]any{}
	var version string
	if json.Unmarshal(given, &version) == nil {
		options["version"] = version
	} else if err := json.Unmarshal(given, &options); err != nil {
		return f, errors.New("its options are not an object")
	}
	for name := range options {
		if _, ok := known[name]; !ok {
			return f, fmt.Errorf("it has no option %s; its options are %s", name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	for name, option := range known {
		if _, ok := options[name]; !ok && option.Default != nil {
			options[name] = option.Default
		}
	}
	set, left, err := dockerEnv(env)
	if err != nil || len(left) > 0 {
		return f, errors.Join(err, fmt.Errorf("containerEnv: %q", left))
	}
	f.set, f.env = set, d.featureEnv(options)
	return f, nil
}

// featureEnv are the variables that install.sh gets, by the specification of features.
func (d *devcontainer) featureEnv(options map[string]any) []string {
	user, home := d.user, "/home/"+d.user
	if user == "" || user == "root" {
		user, home = "root", "/root"
	}
	env := []string{"_REMOTE_USER=" + user, "_REMOTE_USER_HOME=" + home, "_CONTAINER_USER=" + user, "_CONTAINER_USER_HOME=" + home}
	for _, name := range slices.Sorted(maps.Keys(options)) {
		env = append(env, optionVariable(name)+"="+fmt.Sprint(options[name]))
	}
	return env
}

var (
	notInNames = regexp.MustCompile(`[^A-Za-z0-9_]`)
	notAtFirst = regexp.MustCompile(`^[0-9_]+`)
)

func optionVariable(name string) string {
	return strings.ToUpper(notAtFirst.ReplaceAllString(notInNames.ReplaceAllString(name, "_"), "_"))
}

// buildDevcontainer makes the image that a devcontainer.json describes: its image or its Dockerfile's, and
// on top of that the features, the variables and PostCreate.
func (r *Resolver) buildDevcontainer(ctx context.Context, file string, opts BuildOptions, name string, progress func(engine.Progress)) (engine.Image, error) {
	d, err := readDevcontainer(file)
	if err != nil {
		return engine.Image{}, &SourceError{err}
	}
	if opts.Note != nil {
		for _, text := range d.notes {
			opts.Note(text)
		}
	}
	want := engine.Build{Ref: name, Labels: imageLabels(), Args: opts.Args, Network: opts.Network}
	plain := len(d.features) == 0 && len(d.env) == 0 && d.after == ""
	var from string
	if d.build != nil {
		first := want
		if !plain {
			first.Ref = ""
		}
		img, err := r.buildOwn(ctx, d, first, progress)
		if err != nil || plain {
			return img, err
		}
		from = string(img.ID)
	} else if from, err = r.base(ctx, d.image, progress); err != nil {
		return engine.Image{}, err
	}
	text, err := d.dockerfile(from)
	if err != nil {
		return engine.Image{}, &SourceError{fmt.Errorf("%s: %w", file, err)}
	}
	want.Args = nil
	return r.build(ctx, file, want, progress, func(w io.Writer) error { return d.write(w, text) })
}

// buildOwn builds the Dockerfile that a devcontainer.json names.
func (r *Resolver) buildOwn(ctx context.Context, d *devcontainer, want engine.Build, progress func(engine.Progress)) (engine.Image, error) {
	own := filepath.Dir(d.file)
	dir := filepath.Join(own, filepath.FromSlash(d.build.Context))
	path := filepath.Join(own, filepath.FromSlash(d.build.Dockerfile))
	rel, err := filepath.Rel(dir, path)
	if err != nil || !filepath.IsLocal(rel) {
		return engine.Image{}, &SourceError{fmt.Errorf("%s: the Dockerfile %s is not in the context %s; set build.context to a directory that has it", d.file, path, dir)}
	}
	if !isFile(path) {
		return engine.Image{}, &SourceError{fmt.Errorf("%s: build.dockerfile: there is no file %s", d.file, path)}
	}
	args := maps.Clone(d.build.Args)
	for name, value := range args {
		if devVariable.MatchString(value) {
			return engine.Image{}, &SourceError{fmt.Errorf("%s: build.args: %s=%s: nothing of this machine is put into a build by itself; give it with --build-arg %[2]s=VALUE, and leave it out here", d.file, name, value)}
		}
	}
	if args == nil {
		args = map[string]string{}
	}
	maps.Copy(args, want.Args)
	want.Args, want.Target, want.Dockerfile = args, d.build.Target, filepath.ToSlash(rel)
	ignored, err := readIgnored(dir, want.Dockerfile)
	if err != nil {
		return engine.Image{}, &SourceError{err}
	}
	return r.build(ctx, path, want, progress, func(w io.Writer) error { return writeContext(w, dir, ignored) })
}

// dockerfile is the text that puts the rest on top of an image.
func (d *devcontainer) dockerfile(from string) (string, error) {
	if strings.ContainsAny(from, " \t\n\r") {
		return "", fmt.Errorf("image %q is not a reference", from)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "FROM %s\nUSER root\n", from)
	for i, f := range d.features {
		for _, kv := range f.set {
			b.WriteString("ENV " + kv + "\n")
		}
		fmt.Fprintf(&b, "COPY feature%d /tmp/feature%[1]d\n", i)
		fmt.Fprintf(&b, "RUN cd /tmp/feature%d && set -a && . ./%s && set +a && chmod +x install.sh && ./install.sh && cd / && rm -rf /tmp/feature%[1]d\n", i, featureEnvFile)
	}
	for _, kv := range d.env {
		b.WriteString("ENV " + kv + "\n")
	}
	if d.after != "" {
		b.WriteString("COPY " + PostCreate + " /usr/local/bin/" + PostCreate + "\n")
	}
	return b.String(), nil
}

// featureEnvFile has the variables for install.sh, in the feature's directory.
const featureEnvFile = "sandboxbash-options.env"

// write writes the context of the text that dockerfile returns.
func (d *devcontainer) write(w io.Writer, text string) error {
	tw := tar.NewWriter(w)
	if err := writeText(tw, dockerfile, text, 0o644); err != nil {
		return err
	}
	if d.after != "" {
		if err := writeText(tw, PostCreate, d.after, 0o755); err != nil {
			return err
		}
	}
	for i, f := range d.features {
		to := fmt.Sprintf("feature%d", i)
		none, err := patternmatcher.New(nil)
		if err != nil {
			return err
		}
		if err := tw.WriteHeader(&tar.Header{Name: to + "/", Mode: 0o755, Typeflag: tar.TypeDir}); err != nil {
			return err
		}
		c := contextWriter{tw: tw, dir: f.dir, below: to, ignored: none}
		if err := filepath.WalkDir(f.dir, c.visit); err != nil {
			return err
		}
		var env strings.Builder
		for _, kv := range f.env {
			name, value, _ := strings.Cut(kv, "=")
			env.WriteString(name + "=" + shellQuoted(value) + "\n")
		}
		if err := writeText(tw, to+"/"+featureEnvFile, env.String(), 0o644); err != nil {
			return err
		}
	}
	return tw.Close()
}

func writeText(tw *tar.Writer, name, text string, mode int64) error {
	if err := tw.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err := io.WriteString(tw, text)
	return err
}
