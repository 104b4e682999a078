package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

// completions are where Debian's shells look for them.
var completions = []struct{ shell, at string }{
	{"bash", "/usr/share/bash-completion/completions/sandboxbash"},
	{"zsh", "/usr/share/zsh/vendor-completions/_sandboxbash"},
	{"fish", "/usr/share/fish/vendor_completions.d/sandboxbash.fish"},
}

// zipped compresses a page of the manual, as Debian's policy wants them, section 12.1.
func zipped(page []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(page)
	err = errors.Join(err, w.Close())
	return b.Bytes(), err
}

// debian makes the package. It depends on nothing: the program is static, and the
// engine may be elsewhere.
func (r *release) debian(b build) (err error) {
	native, err := r.native()
	if err != nil {
		return err
	}
	at := func(src, dst string, mode os.FileMode) *files.Content {
		return &files.Content{Source: src, Destination: dst, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: r.time}}
	}
	contents := files.Contents{at(b.binary, "/usr/bin/sandboxbash", 0o755)}
	for _, name := range documents {
		base := name
		if name == "LICENSE" {
			base = "copyright" // where Debian's policy has it, section 12.5
		}
		contents = append(contents, at(name, "/usr/share/doc/sandboxbash/"+base, 0o644))
	}
	for _, c := range completions {
		text, err := output(native, "completion", c.shell)
		if err != nil {
			return err
		}
		src := filepath.Join(r.work, "completion."+c.shell)
		if err := os.WriteFile(src, []byte(text+"\n"), 0o644); err != nil {
			return err
		}
		contents = append(contents, at(src, c.at, 0o644))
	}
	docs, err := docs()
	if err != nil {
		return err
	}
	manual, err := r.manual()
	if err != nil {
		return err
	}
	for _, d := range docs {
		contents = append(contents, at(filepath.FromSlash(d.name), "/usr/share/doc/sandboxbash/"+d.name, 0o644))
	}
	for _, page := range manual {
		packed, err := zipped(page.content)
		if err != nil {
			return err
		}
		src := filepath.Join(r.work, path.Base(page.name)+".gz")
		if err := os.WriteFile(src, packed, 0o644); err != nil {
			return err
		}
		contents = append(contents, at(src, "/usr/share/"+page.name+".gz", 0o644))
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "sandboxbash", Arch: b.arch, Platform: "linux", Version: r.version, VersionSchema: "semver", Section: "devel", Priority: "optional",
		Maintainer: "The sandboxbash authors <noreply@sandboxbash.invalid>", Homepage: "https://github.com/sandboxbash/sandboxbash",
		Description: "shell commands of software agents in hardened containers\n" +
			"One session is one long-lived container without network, on a read-only\nroot, as an ordinary user without capabilities.",
		MTime: r.time,
		Overridables: nfpm.Overridables{
			Contents: contents, Suggests: []string{"docker.io | docker-ce | podman"}, Umask: 0o022,
		},
	})
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		return err
	}
	out, err := os.Create(r.name(b.arch) + ".deb")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	return deb.Default.Package(info, out)
}
