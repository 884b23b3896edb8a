// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"

	"github.com/patchbay-cni/patchbay/scripts/internal/product"
	"github.com/patchbay-cni/patchbay/scripts/release/internal/sbom"
)

// artifact is a part of the release that contains programs.
type artifact struct {
	kind, name string
	platform   product.Platform
	digest     string
	programs   []string
}

// writeSBOM writes the SBOM of an artifact, from the programs in the folder of its platform.
func writeSBOM(r release, a artifact, programs, dir string) error {
	described := sbom.Artifact{Type: a.kind, Name: a.name, Version: r.Version, Platform: a.platform, Digest: a.digest, Time: r.Time}
	for _, name := range a.programs {
		program, err := sbom.ReadProgram(filepath.Join(programs, a.platform.String()), name)
		if err != nil {
			return fmt.Errorf("make the SBOM of %s: %w", a.name, err)
		}
		described.Programs = append(described.Programs, program)
	}
	bom, err := sbom.New(described)
	if err != nil {
		return err
	}
	content, err := bom.Encode()
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, "sbom", a.name+"-"+a.platform.String()+".cdx.json"), content)
}
