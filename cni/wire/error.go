// SPDX-License-Identifier: Apache-2.0

package wire

import "fmt"

// Error is a CNI error (CNI 1.1, section 5, "Error").
type Error struct {
	// Code is a CNI error code: below 100 the specification's, above ours.
	Code uint `json:"code"`
	// Msg is one line for a person.
	Msg string `json:"msg"`
	// Details may be longer.
	Details string `json:"details,omitempty"`
	// Cause is what errors.Is looks at; it stays in the process.
	Cause error `json:"-"`
}

// Errorf makes an Error whose message is formatted as fmt.Errorf does; what %w
// wraps is in its Cause.
func Errorf(code uint, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Msg: err.Error(), Cause: err}
}

// Error returns the message and the details.
func (e *Error) Error() string {
	if e.Details == "" {
		return e.Msg
	}
	return e.Msg + ": " + e.Details
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }
