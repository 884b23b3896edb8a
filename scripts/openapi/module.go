// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/zip"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path"
	"strings"
)

// module is one version of k8s.io/kubernetes, with Go's checksum of it.
type module struct {
	path, version, sum string
}

// minor returns the version of Kubernetes without the patch, such as 1.35.
func (m *module) minor() string {
	parts := strings.Split(strings.TrimPrefix(m.version, "v"), ".")
	if len(parts) != 3 {
		return ""
	}
	return parts[0] + "." + parts[1]
}

// download returns the file with the module, which Go's client has verified. It fails if the
// module is not the one that was recorded, and records a checksum that is missing.
func (m *module) download() (archive string, err error) {
	out, err := exec.Command("go", "mod", "download", "-json", m.path+"@"+m.version).Output()
	if err != nil {
		return "", fmt.Errorf("download %s %s: %w: %s", m.path, m.version, err, out)
	}
	var got struct{ Zip, Sum string }
	if err := json.Unmarshal(out, &got); err != nil {
		return "", fmt.Errorf("decode what go mod download prints: %w", err)
	}
	if m.sum != "" && m.sum != got.Sum {
		return "", fmt.Errorf("%s %s must have the checksum %s: got %s", m.path, m.version, m.sum, got.Sum)
	}
	m.sum = got.Sum
	return got.Zip, nil
}

// readDocuments returns the OpenAPI 3 documents in the module's file. The document of version 2 has
// the same definitions, without the defaults.
func readDocuments(archive string) ([][]byte, error) {
	r, err := zip.OpenReader(archive)
	if err != nil {
		return nil, fmt.Errorf("open module: %w", err)
	}
	defer r.Close()
	var documents [][]byte
	for _, f := range r.File {
		if ok, _ := path.Match("*@*/api/openapi-spec/v3/*_openapi.json", strings.TrimPrefix(f.Name, "k8s.io/")); !ok {
			continue
		}
		data, err := readFile(f)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", f.Name, err)
		}
		documents = append(documents, data)
	}
	if len(documents) == 0 {
		return nil, fmt.Errorf("%s has no OpenAPI documents", archive)
	}
	return documents, nil
}

func readFile(f *zip.File) ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}
