// SPDX-License-Identifier: Apache-2.0

package sbom

// BOM is a document in the format CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json), with the fields
// that a release uses.
type BOM struct {
	Schema       string       `json:"$schema"`
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	SerialNumber string       `json:"serialNumber,omitempty"`
	Version      int          `json:"version"`
	Metadata     Metadata     `json:"metadata"`
	Components   []Component  `json:"components"`
	Dependencies []Dependency `json:"dependencies"`
}

// Metadata is the artifact that the document describes, and when the artifact's source was written.
type Metadata struct {
	Timestamp string    `json:"timestamp"`
	Component Component `json:"component"`
}

// Component is an artifact, a program in it, or a Go module that a program contains.
type Component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	Hashes     []Hash     `json:"hashes,omitempty"`
	Licenses   []License  `json:"licenses,omitempty"`
	PURL       string     `json:"purl,omitempty"`
	Properties []Property `json:"properties,omitempty"`
}

// Hash is the hash of a component's file.
type Hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

// License is an expression of SPDX.
type License struct {
	Expression string `json:"expression"`
}

// Property is what the format has no field for.
type Property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Dependency lists what a component contains, by bom-ref.
type Dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}
