// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
)

// sources is the content of sources.txt: the modules, the digest of the definitions that were made
// from them, and the comment at its beginning.
type sources struct {
	comment []string
	modules []module
	digest  string
}

func readSources(file string) (*sources, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read sources: %w", err)
	}
	s, err := parseSources(string(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

func parseSources(text string) (*sources, error) {
	s := &sources{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		fields := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "#"):
			s.comment = append(s.comment, line)
		case len(fields) == 2 && fields[0] == definitionsFile:
			s.digest = fields[1]
		case len(fields) == 2 || len(fields) == 3:
			m := module{path: fields[0], version: fields[1], sum: strings.Join(fields[2:], "")}
			if m.minor() == "" {
				return nil, fmt.Errorf("version %q must be vMAJOR.MINOR.PATCH", m.version)
			}
			s.modules = append(s.modules, m)
		default:
			return nil, fmt.Errorf("line %q must have a module, its version and its checksum", line)
		}
	}
	if len(s.modules) == 0 {
		return nil, errors.New("must name a module")
	}
	return s, nil
}

func (s *sources) encode() []byte {
	var out bytes.Buffer
	for _, line := range s.comment {
		fmt.Fprintln(&out, line)
	}
	for _, m := range s.modules {
		fmt.Fprintln(&out, m.path, m.version, m.sum)
	}
	fmt.Fprintln(&out, definitionsFile, s.digest)
	return out.Bytes()
}

// verify fails if the definitions are not those of the sources.
func (s *sources) verify(data []byte) error {
	for _, m := range s.modules {
		if !strings.HasPrefix(m.sum, "h1:") {
			return fmt.Errorf("%s %s has no checksum: run `make openapi`", m.path, m.version)
		}
	}
	if got := digestOf(data); got != s.digest {
		return fmt.Errorf("%s has the digest %s, and %s has %s: run `make openapi`", definitionsFile, got, sourcesFile, s.digest)
	}
	minors, err := decodeMinors(data)
	if err != nil {
		return err
	}
	var want []string
	for _, m := range s.modules {
		want = append(want, m.minor())
	}
	if got, want := strings.Join(minors, " "), strings.Join(want, " "); got != want {
		return fmt.Errorf("%s has Kubernetes %s, and %s has %s: run `make openapi`", definitionsFile, got, sourcesFile, want)
	}
	return nil
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}
