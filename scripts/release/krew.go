// SPDX-License-Identifier: Apache-2.0

package main

// krewManifest is a Plugin of krew (https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest), with the
// fields that a release uses.
type krewManifest struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Metadata   krewMetadata `json:"metadata"`
	Spec       krewSpec     `json:"spec"`
}

type krewMetadata struct {
	Name string `json:"name"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Bin      string       `json:"bin"`
	URI      string       `json:"uri"`
	SHA256   string       `json:"sha256"`
	Selector krewSelector `json:"selector"`
}

type krewSelector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

// newKrewManifest is the manifest without platforms.
func newKrewManifest(r release) krewManifest {
	return krewManifest{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin",
		Metadata: krewMetadata{Name: "patchbay"},
		Spec: krewSpec{
			Version:          r.Version,
			Homepage:         homepage,
			ShortDescription: "Repair networks of Patchbay, and join clusters to a hub",
			Description: "Repairs the networks and addresses of Patchbay, which connects Pods to the VLANs and VXLANs of a data\n" +
				"centre. Installs hubs of Patchbay, joins clusters to them, and shows where workloads are placed.\n",
		},
	}
}
