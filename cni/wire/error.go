// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
)

// CNI error codes (CNI 1.1, section 2, "Well-known error codes"), then ours.
const (
	// CodeVersion: the configuration's cniVersion is not supported.
	CodeVersion uint = 1
	// CodeField: the configuration has a field that is not supported.
	CodeField uint = 2
	// CodeEnv: an environment variable is missing or invalid.
	CodeEnv uint = 4
	// CodeIO: input or output failed.
	CodeIO uint = 5
	// CodeDecode: standard input is not the JSON that it should be.
	CodeDecode uint = 6
	// CodeConfig: the network configuration is invalid.
	CodeConfig uint = 7
	// CodeTryAgain: waiting helps; the runtime tries again.
	CodeTryAgain uint = 11
	// CodeNotAvailable: STATUS, the plugin cannot serve an ADD.
	CodeNotAvailable uint = 50
	// CodeFailed: the daemon tried and failed, and says why.
	CodeFailed uint = 100
	// CodeNotImplemented: the command is not implemented yet.
	CodeNotImplemented uint = 101
)

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
