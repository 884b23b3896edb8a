// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// reference is a parsed $ref: a definition of Kubernetes, or a place in a document.
type reference struct {
	// definition is the name of a definition of Kubernetes.
	definition string
	// document names a file; it is empty for the document that has the reference.
	document string
	// pointer has the keys that lead from the document's root to the schema.
	pointer []string
}

// resolverSchemata matches the documents of Kubernetes that come with the Python package
// k8s_crd_resolver. Their version does not count: the target's does.
var resolverSchemata = regexp.MustCompile(`^python://k8s_crd_resolver/schemata/k8s-[^/]*\.json$`)

// parseReference reads a $ref. Those of Kubernetes' definitions are names.
func parseReference(text string, kubernetes bool) (reference, error) {
	if kubernetes {
		return reference{definition: text}, nil
	}
	document, fragment, hasFragment := strings.Cut(text, "#")
	pointer, err := parsePointer(fragment)
	switch {
	case err != nil:
		return reference{}, fmt.Errorf("%q: %w", text, err)
	case text == "":
		return reference{}, errors.New(`must name a definition of Kubernetes, a file, or a place in this file such as "#/definitions/NAME"`)
	case resolverSchemata.MatchString(document):
		if len(pointer) != 2 || pointer[0] != "definitions" {
			return reference{}, fmt.Errorf("%q: must end with #/definitions/NAME", text)
		}
		return reference{definition: pointer[1]}, nil
	case !hasFragment && !strings.Contains(document, "/") && !isFileName(document):
		return reference{definition: document}, nil
	default:
		return reference{document: document, pointer: pointer}, nil
	}
}

// isFileName tells the name of a file from that of a definition.
func isFileName(name string) bool {
	switch path.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	default:
		return false
	}
}

// parsePointer returns the keys of a JSON pointer in a URI's fragment (RFC 6901).
func parsePointer(fragment string) ([]string, error) {
	fragment, err := url.PathUnescape(fragment)
	if err != nil {
		return nil, fmt.Errorf("must have a valid fragment: %w", err)
	}
	if fragment == "" {
		return nil, nil
	}
	rest, ok := strings.CutPrefix(fragment, "/")
	if !ok {
		return nil, errors.New("must have #/ before the path in the document")
	}
	keys := strings.Split(rest, "/")
	for i, key := range keys {
		keys[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(key)
	}
	return keys, nil
}

// formatPointer is the inverse of parsePointer, for messages.
func formatPointer(keys []string) string {
	var out strings.Builder
	out.WriteString("#")
	for _, key := range keys {
		out.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key))
	}
	return out.String()
}

// lookup returns the schema to which a pointer leads in a document.
func lookup(document any, keys []string) (schema, error) {
	value := document
	for i, key := range keys {
		var ok bool
		switch v := value.(type) {
		case map[string]any:
			value, ok = v[key]
		case []any:
			n, err := strconv.Atoi(key)
			if ok = err == nil && n >= 0 && n < len(v); ok {
				value = v[n]
			}
		}
		if !ok {
			return nil, fmt.Errorf("%s must be in the document", formatPointer(keys[:i+1]))
		}
	}
	s, ok := value.(schema)
	if !ok {
		return nil, fmt.Errorf("%s must be a schema: got %s", formatPointer(keys), kindOf(value))
	}
	return s, nil
}
