// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// maxFile is how many bytes a file may have. The OpenAPI document of Kubernetes has about 4 MB.
const maxFile = 32 << 20

// openFlags open a file to read it. A FIFO is opened without waiting for a process that writes into it.
const openFlags = os.O_RDONLY | syscall.O_NONBLOCK

// readRegular reads and closes a file. It fails for a device or a FIFO, which may have no end.
func readRegular(f *os.File) (data []byte, err error) {
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: must be a regular file: got %s", info.Name(), info.Mode().Type())
	}
	data, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s: must have at most %d bytes", info.Name(), maxFile)
	}
	return data, err
}

// decode reads a file with one document of YAML or JSON. It returns nil for an empty file.
func decode(data []byte) (any, error) {
	documents, err := decodeAll(data)
	if err != nil || len(documents) == 0 {
		return nil, err
	}
	if len(documents) > 1 {
		return nil, fmt.Errorf("must have one document: got %d", len(documents))
	}
	return documents[0], nil
}

// decodeAll reads the documents of a file, without those that are empty.
func decodeAll(data []byte) ([]any, error) {
	var documents []any
	for _, part := range splitDocuments(data) {
		document, err := decodePart(part)
		if err != nil {
			return nil, err
		}
		if document != nil {
			documents = append(documents, document)
		}
	}
	return documents, nil
}

// splitDocuments returns the text of each document. YAML allows its markers of documents at the beginning of
// a line only as markers, also within a text of several lines.
func splitDocuments(data []byte) [][]byte {
	var parts [][]byte
	start, offset := 0, 0
	for line := range bytes.Lines(data) {
		end := offset + len(line)
		switch {
		case isMarker(line, "---"):
			parts = append(parts, data[start:offset])
			start = offset
		case isMarker(line, "..."):
			parts = append(parts, data[start:offset])
			start = end
		}
		offset = end
	}
	return append(parts, data[start:])
}

func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || strings.ContainsRune(" \t\r\n", rune(rest[0])))
}

// decodePart reads one document. Integers stay integers.
func decodePart(data []byte) (any, error) {
	data, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("must be YAML or JSON: %w", err)
	}
	var document any
	if err := json.UnmarshalCaseSensitivePreserveInts(data, &document); err != nil {
		return nil, fmt.Errorf("must be JSON after the conversion from YAML: %w", err)
	}
	return document, nil
}
