package main

import (
	"debug/buildinfo"
	"errors"
	"os"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// bomVersion is the newest that the usual readers know, and whose whole schema
// comes with the library: the test holds the bill to it.
const bomVersion = cdx.SpecVersion1_6

// sbom writes what the program is made of, as the compiler has noted it in the
// program itself: modules that are in go.mod and not in it are not listed.
func (r *release) sbom(b build) (err error) {
	info, err := buildinfo.ReadFile(b.binary)
	if err != nil {
		return err
	}
	bom := cdx.NewBOM()
	root := "pkg:golang/" + info.Main.Path + "@" + r.version
	bom.Metadata = &cdx.Metadata{
		Timestamp: r.time.Format(time.RFC3339),
		Component: &cdx.Component{
			BOMRef: root, Type: cdx.ComponentTypeApplication, Name: info.Main.Path, Version: r.version, PackageURL: root,
			Properties: &[]cdx.Property{{Name: "go:platform", Value: b.os + "/" + b.arch}},
		},
	}
	standard := "pkg:golang/std@" + info.GoVersion
	components := []cdx.Component{{BOMRef: standard, Type: cdx.ComponentTypeLibrary, Name: "std", Version: info.GoVersion, PackageURL: standard}}
	refs := []string{standard}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		ref := "pkg:golang/" + dep.Path + "@" + dep.Version
		components = append(components, cdx.Component{
			BOMRef: ref, Type: cdx.ComponentTypeLibrary, Name: dep.Path, Version: dep.Version, PackageURL: ref,
			Properties: &[]cdx.Property{{Name: "go:sum", Value: dep.Sum}},
		})
		refs = append(refs, ref)
	}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: root, Dependencies: &refs}}
	out, err := os.Create(r.name(b.os, b.arch) + ".cdx.json")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	return cdx.NewBOMEncoder(out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, bomVersion)
}
