// SPDX-License-Identifier: Apache-2.0

// Command sbom checks that files are documents of CycloneDX 1.6: by the schema of the format, and by its decoder
// for Go. It reports what is wrong with each, and exits with 1 if something is.
//
//	cd test/sbom && go run . FILE...
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

func main() {
	schema, err := readSchema()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(2)
	}
	var errs []error
	for _, file := range os.Args[1:] {
		if err := check(schema, file); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", file, err))
		}
	}
	if len(os.Args) == 1 {
		errs = append(errs, errors.New("usage: sbom FILE"))
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// readSchema reads the schema from the source of the module that has the format's types.
func readSchema() (*jsonschema.Schema, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go").Output()
	if err != nil {
		return nil, fmt.Errorf("find the schema: %w", err)
	}
	folder := filepath.Join(strings.TrimSpace(string(out)), "schema")
	compiler := jsonschema.NewCompiler()
	// The schemas refer to each other by their addresses.
	const site = "http://cyclonedx.org/schema/"
	for address, name := range map[string]string{
		"bom-1.6.schema.json": "bom-1.6.schema.json", "spdx.schema.json": "spdx.schema.json", "jsf-0.82.schema.json": "jsf-0.82.schemax.json",
	} {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return nil, fmt.Errorf("read schema: %w", err)
		}
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(content))
		if err != nil {
			return nil, fmt.Errorf("decode schema %s: %w", name, err)
		}
		if err := compiler.AddResource(site+address, document); err != nil {
			return nil, fmt.Errorf("add schema %s: %w", name, err)
		}
	}
	return compiler.Compile(site + "bom-1.6.schema.json")
}

// check checks one file.
func check(schema *jsonschema.Schema, file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	if err := schema.Validate(document); err != nil {
		return err
	}
	bom := cyclonedx.BOM{}
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(content), cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		return fmt.Errorf("decode as CycloneDX: %w", err)
	}
	if bom.SpecVersion != cyclonedx.SpecVersion1_6 || bom.Components == nil || len(*bom.Components) == 0 {
		return fmt.Errorf("must be of version 1.6 and have components, got version %s", bom.SpecVersion)
	}
	return nil
}
