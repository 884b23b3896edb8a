// SPDX-License-Identifier: Apache-2.0

// Package sbom describes what the programs of an artifact are built from, as the Go linker has recorded it in
// them.
package sbom

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/patchbay-cni/patchbay/scripts/internal/product"
)

// Artifact is what a document describes.
type Artifact struct {
	// Type is a CycloneDX type of components, such as container.
	Type     string
	Name     string
	Version  string
	Platform product.Platform
	// Digest is the SHA-256 of the artifact in hexadecimal digits.
	Digest string
	// Time is that of the source.
	Time     time.Time
	Programs []Program
}

// Program is a program in an artifact.
type Program struct {
	Name string
	// Digest is the SHA-256 of the program in hexadecimal digits.
	Digest string
	Info   *debug.BuildInfo
}

// ReadProgram reads a program's digest and build information.
func ReadProgram(dir, name string) (Program, error) {
	path := filepath.Join(dir, name)
	content, err := os.ReadFile(path)
	if err != nil {
		return Program{}, fmt.Errorf("read program: %w", err)
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return Program{}, fmt.Errorf("read the build information of %s: %w", path, err)
	}
	digest := sha256.Sum256(content)
	return Program{Name: name, Digest: hex.EncodeToString(digest[:]), Info: info}, nil
}

// New describes an artifact. The same artifact always has the same document.
func New(a Artifact) (BOM, error) {
	b := BOM{
		Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", Format: "CycloneDX", SpecVersion: "1.6", Version: 1,
		Metadata: Metadata{
			Timestamp: a.Time.UTC().Format(time.RFC3339),
			Component: Component{
				Type: a.Type, Ref: "artifact", Name: a.Name, Version: a.Version,
				Hashes:     sha256Of(a.Digest),
				Licenses:   []License{{Expression: "Apache-2.0"}},
				Properties: []Property{{"patchbay:platform", a.Platform.OS + "/" + a.Platform.Arch}},
			},
		},
	}
	modules := map[string]Component{}
	top := Dependency{Ref: b.Metadata.Component.Ref}
	for _, p := range a.Programs {
		contained := modulesOf(p.Info, a.Version)
		maps.Copy(modules, contained)
		program := component(p, a)
		b.Components = append(b.Components, program)
		b.Dependencies = append(b.Dependencies, Dependency{Ref: program.Ref, DependsOn: slices.Sorted(maps.Keys(contained))})
		top.DependsOn = append(top.DependsOn, program.Ref)
	}
	b.Dependencies = append([]Dependency{top}, b.Dependencies...)
	for _, ref := range slices.Sorted(maps.Keys(modules)) {
		b.Components = append(b.Components, modules[ref])
	}
	content, err := json.Marshal(b)
	if err != nil {
		return BOM{}, fmt.Errorf("encode the SBOM of %s: %w", a.Name, err)
	}
	// The format wants a UUID. Version 8 leaves the bits to the application: here they are a digest.
	b.SerialNumber = "urn:uuid:" + uuid.NewHash(sha256.New(), uuid.Nil, content, 8).String()
	return b, nil
}

// Encode returns the document as it is released.
func (b BOM) Encode() ([]byte, error) {
	content, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode SBOM: %w", err)
	}
	return append(content, '\n'), nil
}

// modulesOf returns the modules in a program, and Go's standard library, by their package URLs.
func modulesOf(info *debug.BuildInfo, version string) map[string]Component {
	modules := map[string]Component{}
	add := func(name, version string, properties ...Property) {
		purl := packageURL(name, version, "")
		modules[purl] = Component{Type: "library", Ref: purl, Name: name, Version: version, PURL: purl, Properties: properties}
	}
	add("stdlib", strings.TrimPrefix(info.GoVersion, "go"))
	if below(info.Path, info.Main.Path) {
		add(info.Main.Path, version)
	}
	for _, m := range info.Deps {
		m = effective(m)
		add(m.Path, m.Version, Property{"patchbay:go.sum", m.Sum})
	}
	return modules
}

// component describes a program.
func component(p Program, a Artifact) Component {
	module := mainModule(p.Info, a.Version)
	subpath := strings.TrimPrefix(strings.TrimPrefix(p.Info.Path, module.Path), "/")
	c := Component{
		Type: "application", Ref: "program:" + p.Name, Name: p.Name, Version: module.Version, Hashes: sha256Of(p.Digest),
		PURL:       packageURL(module.Path, module.Version, subpath),
		Properties: []Property{{"patchbay:go", p.Info.GoVersion}},
	}
	for _, s := range p.Info.Settings {
		c.Properties = append(c.Properties, Property{"patchbay:build:" + s.Key, s.Value})
	}
	return c
}

// mainModule returns the module that has the main package. Of a program of this repository, the linker has not
// recorded the version. A program of others is built by a module without code, which depends on the main package's.
func mainModule(info *debug.BuildInfo, version string) debug.Module {
	found := debug.Module{Path: info.Main.Path, Version: version}
	for _, m := range info.Deps {
		if below(info.Path, m.Path) {
			found = *effective(m)
		}
	}
	return found
}

// effective returns the module that the linker has used.
func effective(m *debug.Module) *debug.Module {
	if m.Replace != nil {
		return m.Replace
	}
	return m
}

// below reports whether a module has a package, by its path.
func below(pkg, module string) bool {
	return pkg == module || strings.HasPrefix(pkg, module+"/")
}

// packageURL returns the package URL of a module, or of a package below it. Its specification asks for small
// letters in the type golang.
func packageURL(module, version, subpath string) string {
	elements := strings.Split(strings.ToLower(module), "/")
	for i, e := range elements {
		elements[i] = url.PathEscape(e)
	}
	purl := "pkg:golang/" + strings.Join(elements, "/") + "@" + strings.ReplaceAll(url.PathEscape(version), "+", "%2B")
	if subpath != "" {
		purl += "#" + subpath
	}
	return purl
}

// sha256Of is a list of one hash.
func sha256Of(digest string) []Hash { return []Hash{{Algorithm: "SHA-256", Content: digest}} }
