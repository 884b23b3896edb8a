// SPDX-License-Identifier: Apache-2.0

// Package slave is what the IPVLAN and the MACVLAN backend share: it turns an
// interface of the journal into a slave link of its host link.
package slave

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/daemon/kernel"
	"github.com/patchbay-cni/patchbay/network"
)

// Kernel makes and removes slaves; both methods are idempotent.
type Kernel interface {
	Attach(context.Context, *kernel.Slave) (kernel.Outcome, error)
	Detach(context.Context, *kernel.Slave) error
}

// Backend makes slaves of one kind. It implements attach.Backend.
type Backend struct {
	kernel Kernel
	kind   string
	mode   string
}

var _ attach.Backend = (*Backend)(nil)

// New returns a backend for a kind and mode of kernel.Slave.
func New(k Kernel, kind, mode string) *Backend {
	return &Backend{kernel: k, kind: kind, mode: mode}
}

// Attach makes the slave in the Pod and writes its MAC and MTU into ifc. What
// waiting may cure is attach.ErrTryAgain.
func (b *Backend) Attach(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	out, err := b.kernel.Attach(ctx, b.slave(rec, ifc))
	if err != nil {
		return fmt.Errorf("network %s: %w", ifc.Network.Ref, retryable(err))
	}
	ifc.MAC, ifc.MTU = out.MAC, out.MTU
	return nil
}

// Detach removes the slave.
func (b *Backend) Detach(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	if err := b.kernel.Detach(ctx, b.slave(rec, ifc)); err != nil {
		return fmt.Errorf("network %s: %w", ifc.Network.Ref, err)
	}
	return nil
}

// retryable adds attach.ErrTryAgain: a host link that somebody removed comes
// back at netwatcher's next round.
func retryable(err error) error {
	if errors.Is(err, kernel.ErrParentMissing) {
		return fmt.Errorf("%w: %w", attach.ErrTryAgain, err)
	}
	return err
}

func (b *Backend) slave(rec *attach.Record, ifc *attach.Interface) *kernel.Slave {
	return &kernel.Slave{
		Netns:        rec.Netns,
		Name:         ifc.Name,
		Kind:         b.kind,
		Mode:         b.mode,
		Parent:       ifc.Parent,
		MTU:          ifc.Network.MTU,
		Owner:        ifc.Network.Ref.String(),
		V4:           ifc.V4,
		V6:           ifc.V6,
		Routes:       slices.Concat(routes(ifc.Network.V4), routes(ifc.Network.V6)),
		Table:        ifc.Network.Table,
		PolicyRoutes: ifc.Proutes,
	}
}

func routes(s *network.Subnet) []network.Route {
	if s == nil {
		return nil
	}
	return s.Routes
}
