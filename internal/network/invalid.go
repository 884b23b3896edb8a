// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ErrInvalid is the error of all invalid objects and annotations, for errors.Is.
var ErrInvalid = errors.New("invalid")

// InvalidError has the faults of one object or annotation: for each the path of the field, its value,
// the rule and an accepted value.
type InvalidError struct {
	// Subject is the object, such as ClusterNetwork/storage; it may be empty.
	Subject string
	// Faults in the order of the fields.
	Faults field.ErrorList
	// Err, if not nil, replaces ErrInvalid for errors.Is: the object is valid by itself and
	// conflicts with another one.
	Err error
}

// Error joins the faults with semicolons.
func (e *InvalidError) Error() string {
	texts := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		texts[i] = f.Error()
	}
	text := strings.Join(texts, "; ")
	if e.Subject == "" {
		return text
	}
	return e.Subject + ": " + text
}

// Is reports whether target is ErrInvalid and the object is invalid by itself.
func (e *InvalidError) Is(target error) bool { return e.Err == nil && target == ErrInvalid }

// Unwrap returns Err.
func (e *InvalidError) Unwrap() error { return e.Err }

// faults collects the faults of an object.
type faults struct{ list field.ErrorList }

func (f *faults) invalid(path *field.Path, value any, rule string) {
	f.list = append(f.list, field.Invalid(path, value, rule))
}

func (f *faults) required(path *field.Path, rule string) {
	f.list = append(f.list, field.Required(path, rule))
}

func (f *faults) forbidden(path *field.Path, rule string) {
	f.list = append(f.list, field.Forbidden(path, rule))
}

// err returns all faults of subject as one error, or nil.
func (f *faults) err(subject string) error {
	if len(f.list) == 0 {
		return nil
	}
	return &InvalidError{Subject: subject, Faults: f.list}
}
