// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
)

// CNI error codes (CNI 1.1, section 2, "Well-known error codes"); Patchbay's own are from 100 on.
const (
	// CodeVersion means that the configuration's cniVersion is not supported.
	CodeVersion uint = 1
	// CodeField means that the configuration has a field that is not supported.
	CodeField uint = 2
	// CodeEnv means that an environment variable is missing or invalid.
	CodeEnv uint = 4
	// CodeIO means that input or output failed.
	CodeIO uint = 5
	// CodeDecode means that standard input is not valid JSON.
	CodeDecode uint = 6
	// CodeConfig means that the network configuration is invalid.
	CodeConfig uint = 7
	// CodeTryAgain means that a retry can succeed; the runtime tries again.
	CodeTryAgain uint = 11
	// CodeNotAvailable is for STATUS: the plugin cannot handle an ADD.
	CodeNotAvailable uint = 50
	// CodeFailed means that the daemon failed to handle the request.
	CodeFailed uint = 100
	// CodeNotImplemented means that the command is not implemented.
	CodeNotImplemented uint = 101
)

// Error is a CNI error (CNI 1.1, section 5, "Error").
type Error struct {
	// Code is a CNI error code: below 100 the specification's, from 100 on Patchbay's.
	Code uint `json:"code"`
	// Msg is one line.
	Msg string `json:"msg"`
	// Details may be longer.
	Details string `json:"details,omitempty"`
	// Cause is the wrapped error, which is not sent.
	Cause error `json:"-"`
}

// Errorf returns an Error with a message that is formatted as by fmt.Errorf. Its Cause has the
// errors that %w wraps.
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
