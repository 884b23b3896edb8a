// SPDX-License-Identifier: Apache-2.0

// Command openapi writes the definitions of Kubernetes' OpenAPI documents that the CRD compiler
// embeds. A folder has sources.txt, which lists the versions with their checksums, and
// definitions.json.gz, which the command writes. With -check it reads these two files only, and
// fails if one was changed without the other. Without it, it gets the modules from Go's module
// proxy, about 40 MB each.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// The names of the files in the folder.
const (
	sourcesFile     = "sources.txt"
	definitionsFile = "definitions.json.gz"
)

func main() {
	onlyCheck := flag.Bool("check", false, "compare the files' checksums, and write nothing")
	flag.Parse()
	folder := flag.Arg(0)
	run := write
	if *onlyCheck {
		run = check
	}
	if err := run(folder); err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}

// check fails if the definitions are not those that write has made from the sources.
func check(folder string) error {
	s, err := readSources(filepath.Join(folder, sourcesFile))
	if err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(folder, definitionsFile))
	if err != nil {
		return fmt.Errorf("read definitions: %w", err)
	}
	return s.verify(data)
}

// write gets the modules, and writes the definitions and the checksums.
func write(folder string) error {
	file := filepath.Join(folder, sourcesFile)
	s, err := readSources(file)
	if err != nil {
		return err
	}
	d := newDefinitions()
	for i := range s.modules {
		archive, err := s.modules[i].download()
		if err != nil {
			return err
		}
		documents, err := readDocuments(archive)
		if err != nil {
			return err
		}
		if err := d.add(s.modules[i].minor(), documents); err != nil {
			return err
		}
	}
	data, err := d.encode()
	if err != nil {
		return err
	}
	s.digest = digestOf(data)
	if err := os.WriteFile(filepath.Join(folder, definitionsFile), data, 0o644); err != nil {
		return fmt.Errorf("write definitions: %w", err)
	}
	return os.WriteFile(file, s.encode(), 0o644)
}
