// SPDX-License-Identifier: Apache-2.0

// Package slave is the backend of the NetworkTypes ipvlan and macvlan: it attaches Pods
// through slave links of the host's links.
package slave

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/firewall"
	"github.com/patchbay-cni/patchbay/daemon/internal/kernel"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Kernel creates and deletes slaves. Both methods are idempotent.
type Kernel interface {
	Attach(context.Context, *kernel.Slave) (kernel.AttachResult, error)
	Detach(context.Context, *kernel.Slave) error
}

// SourceGuard lets frames of slaves pass the source guard of their host link.
type SourceGuard interface {
	// Permit lets frames from s pass. With strict it fails if the kernel cannot guard.
	Permit(name string, s firewall.Source, strict bool) error
	// Revoke undoes Permit.
	Revoke(link, name string)
}

// Backend attaches Pods through slaves of one kind. It implements attach.Backend.
type Backend struct {
	kernel      Kernel
	sourceGuard SourceGuard
	kind        string
	mode        string
}

var _ attach.Backend = (*Backend)(nil)

// NewIPVLAN returns the backend of NetworkType ipvlan, in mode l2. Its slaves share the MAC
// of their host link, as switches that allow one MAC per port require.
func NewIPVLAN(k Kernel, s SourceGuard) *Backend {
	return &Backend{kernel: k, sourceGuard: s, kind: kernel.IPVLAN, mode: "l2"}
}

// NewMACVLAN returns the backend of NetworkType macvlan, in mode bridge. Its slaves have a MAC
// each.
func NewMACVLAN(k Kernel, s SourceGuard) *Backend {
	return &Backend{kernel: k, sourceGuard: s, kind: kernel.MACVLAN, mode: "bridge"}
}

// Attach creates the slave in the Pod and writes its MAC and MTU into ifc. Errors that can
// disappear by waiting wrap attach.ErrTryAgain.
func (b *Backend) Attach(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	s := b.slaveSpec(rec, ifc)
	if b.kind == kernel.MACVLAN {
		s.MAC = kernel.RandomMAC() // the source guard needs it before the slave sends
	}
	if err := b.sourceGuard.Permit(SourceName(rec, ifc), sourceOf(rec, ifc, s.MAC), ifc.Network.SourceGuardSet); err != nil {
		return fmt.Errorf("network %s: %w: %w", ifc.Network.Ref, attach.ErrTryAgain, err)
	}
	out, err := b.kernel.Attach(ctx, s)
	if err != nil {
		b.sourceGuard.Revoke(ifc.Parent, SourceName(rec, ifc))
		return fmt.Errorf("network %s: %w", ifc.Network.Ref, retryable(err))
	}
	ifc.MAC, ifc.MTU = out.MAC, out.MTU
	return nil
}

// SourceName is the name under which an interface's source is permitted.
func SourceName(rec *attach.Record, ifc *attach.Interface) string {
	return rec.ContainerID + "/" + rec.IfName + "/" + ifc.Name
}

func sourceOf(rec *attach.Record, ifc *attach.Interface, mac net.HardwareAddr) firewall.Source {
	return firewall.Source{Link: ifc.Parent, Pod: rec.ContainerID, MAC: mac, V4: ifc.V4.Addr(), V6: ifc.V6.Addr()}
}

// RecordedSources returns the sources of the slaves in the journal's records, by SourceName.
func RecordedSources(records []*attach.Record) map[string]firewall.Source {
	sources := map[string]firewall.Source{}
	for _, rec := range records {
		for i := range rec.Interfaces {
			ifc := &rec.Interfaces[i]
			if rec.State == attach.Released || ifc.Network.Delegates() || ifc.Parent == "" {
				continue
			}
			var mac net.HardwareAddr
			if ifc.Network.Type == v1.TypeMACVLAN {
				mac, _ = net.ParseMAC(ifc.MAC) // the kernel's format
			}
			sources[SourceName(rec, ifc)] = sourceOf(rec, ifc, mac)
		}
	}
	return sources
}

// Detach deletes the slave.
func (b *Backend) Detach(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	if err := b.kernel.Detach(ctx, b.slaveSpec(rec, ifc)); err != nil {
		return fmt.Errorf("network %s: %w", ifc.Network.Ref, err)
	}
	b.sourceGuard.Revoke(ifc.Parent, SourceName(rec, ifc))
	return nil
}

// retryable adds attach.ErrTryAgain if the host link is missing: netwatcher creates it again.
func retryable(err error) error {
	if errors.Is(err, kernel.ErrParentMissing) {
		return fmt.Errorf("%w: %w", attach.ErrTryAgain, err)
	}
	return err
}

func (b *Backend) slaveSpec(rec *attach.Record, ifc *attach.Interface) *kernel.Slave {
	return &kernel.Slave{
		PodInterface: kernel.PodInterface{
			Netns:        rec.Netns,
			Name:         ifc.Name,
			Owner:        ifc.Network.Ref.String(),
			V4:           ifc.V4,
			V6:           ifc.V6,
			Routes:       slices.Concat(routes(ifc.Network.V4), routes(ifc.Network.V6)),
			Table:        ifc.Network.Table,
			PolicyRoutes: ifc.Proutes,
		},
		Kind:   b.kind,
		Mode:   b.mode,
		Parent: ifc.Parent,
		MTU:    ifc.Network.MTU,
	}
}

func routes(s *network.Subnet) []network.Route {
	if s == nil {
		return nil
	}
	return s.Routes
}
