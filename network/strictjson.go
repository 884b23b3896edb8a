// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	strict "sigs.k8s.io/json"
)

// splitEntries cuts a JSON list into its entries, so that each fault can be told
// with the entry's index.
func splitEntries(f *faults, path *field.Path, value string) []json.RawMessage {
	if len(value) > maxAnnotation {
		f.list = append(f.list, field.TooLong(path, "", maxAnnotation))
		return nil
	}
	dec := json.NewDecoder(strings.NewReader(value))
	var entries []json.RawMessage
	if err := dec.Decode(&entries); err != nil {
		f.invalid(path, excerpt(value, offsetOf(err, len(value))), listFault(err, len(value)))
		return nil
	}
	end := int(dec.InputOffset())
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		f.invalid(path, excerpt(value, end), fmt.Sprintf("has more after the JSON list, at byte %d: end it there", end))
		return nil
	}
	if entries == nil {
		f.invalid(path, "null", "is a JSON list: use [] for the default network")
	}
	if len(entries) > maxInterfaces {
		f.list = append(f.list, field.TooMany(path, len(entries), maxInterfaces))
		return nil
	}
	return entries
}

// listFault words what encoding/json has against a list.
func listFault(err error, size int) string {
	if wrongType, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf(`is a JSON %s: use a list, such as [{"clusterNetwork": "storage", "ip": "dynamic"}]`, wrongType.Value)
	}
	return fmt.Sprintf("is not JSON: %v at byte %d", err, offsetOf(err, size))
}

// offsetOf returns the byte at which err found a text of size bytes wrong.
func offsetOf(err error, size int) int {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok && syntax.Offset > 0 {
		return int(syntax.Offset) - 1
	}
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return 0
	}
	return size // it ended too early
}

// excerpt returns the part of value around a byte.
func excerpt(value string, at int) string {
	const around = 20
	from, to := max(at-around, 0), min(at+around, len(value))
	return strings.ToValidUTF8(value[from:to], "\ufffd")
}

// decodeEntry fills into from a JSON object, case-sensitively, and reports
// unknown and repeated keys and values of the wrong type.
func decodeEntry(f *faults, path *field.Path, raw json.RawMessage, into any) bool {
	if trimmed := bytes.TrimSpace(raw); len(trimmed) == 0 || trimmed[0] != '{' {
		f.invalid(path, excerpt(string(trimmed), 0), `is not a JSON object: use one such as {"clusterNetwork": "storage"}`)
		return false
	}
	faults, err := strict.UnmarshalStrict(raw, into)
	if err != nil {
		if wrongType, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrongType.Field != "" {
			path = path.Child(wrongType.Field)
		}
		f.invalid(path, excerpt(string(raw), 0), wrongTypeRule(err))
		return false
	}
	for _, fault := range faults {
		f.invalid(path, excerpt(string(raw), 0), fault.Error()+": use "+entryKeys)
	}
	return len(faults) == 0
}

func wrongTypeRule(err error) string {
	if wrongType, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf("is a JSON %s: use a %s", wrongType.Value, wrongType.Type.Kind())
	}
	return err.Error()
}
