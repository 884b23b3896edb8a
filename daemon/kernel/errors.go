// SPDX-License-Identifier: Apache-2.0

package kernel

import "errors"

// Errors that callers tell apart with errors.Is; the text around them names the
// link, the namespace and the cause.
var (
	// ErrNamespaceGone says that a path is no network namespace (any more).
	ErrNamespaceGone = errors.New("network namespace is gone")
	// ErrParentMissing says that the host link below a slave does not exist.
	ErrParentMissing = errors.New("parent link not found")
	// ErrParentBusy says that the parent carries something that a slave of this
	// kind cannot share it with: a bridge or bond has it, or slaves of another kind.
	ErrParentBusy = errors.New("parent link is used for something else")
	// ErrNameTaken says that a link of somebody else has the name.
	ErrNameTaken = errors.New("link name is taken")
	// ErrAddressTaken says that another host answers to the address, or that
	// another slave of the same parent has it.
	ErrAddressTaken = errors.New("address is in use on the network")
	// ErrInvalid says that a request can never succeed as it is.
	ErrInvalid = errors.New("invalid request")
)
