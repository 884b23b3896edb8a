// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"

	"github.com/patchbay-cni/patchbay/internal/network"
)

// Errors of the interfaces that a Pod requests.
var (
	// ErrInvalidAnnotation means that the Pod's annotation breaks a rule by itself, or one of its
	// networks.
	ErrInvalidAnnotation = errors.New("invalid annotation")
	// ErrNotAllowed means that a network is not for the Pod's namespace.
	ErrNotAllowed = errors.New("network not allowed")
)

// PodError is the error of an ADD about which the Pod has an Event. Its text is that of Err.
type PodError struct {
	// Reason is the reason of the Event.
	Reason string
	Err    error
}

// Error returns the text of Err.
func (e *PodError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *PodError) Unwrap() error { return e.Err }

// causedError has the text of err. errors.Is and errors.As find cause, too, which the text leaves out.
type causedError struct {
	cause, err error
}

// Error returns the text of err.
func (e *causedError) Error() string { return e.err.Error() }

// Unwrap returns both errors.
func (e *causedError) Unwrap() []error { return []error{e.cause, e.err} }

// networkError is an error of an interface on a network that exists, with the text of err.
type networkError struct {
	ref network.Ref
	err error
}

// withNetwork returns an error with its network.
func withNetwork(ref network.Ref, err error) error {
	return &networkError{ref: ref, err: err}
}

// Error returns the text of err.
func (e *networkError) Error() string { return e.err.Error() }

// Unwrap returns err.
func (e *networkError) Unwrap() error { return e.err }

// NetworkOf returns the network of an error of Add. It is zero when the error concerns no single
// network, or one that is not known to exist.
func NetworkOf(err error) network.Ref {
	if e := (*networkError)(nil); errors.As(err, &e) {
		return e.ref
	}
	return network.Ref{}
}
