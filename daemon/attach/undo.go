// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/patchbay-cni/patchbay/network"
)

// backend returns who makes the network's interfaces.
func (s *Service) backend(n *network.Network) (Backend, error) {
	b := s.Backends[n.Type]
	if n.Delegates() {
		b = s.Delegate
	}
	if b != nil {
		return b, nil
	}
	return nil, fmt.Errorf("network %s: NetworkType %s is not supported on this node", n.Ref, n.Type)
}

// unplug detaches all interfaces in reverse order. One that fails does not keep
// the others.
func (s *Service) unplug(ctx context.Context, rec *Record) error {
	rec = s.withoutGoneNamespace(rec)
	var failed []error
	for i := range slices.Backward(rec.Interfaces) {
		ifc := &rec.Interfaces[i]
		b, err := s.backend(&ifc.Network)
		if err == nil {
			err = b.Detach(ctx, rec, ifc)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("detach %s from network %s: %w", ifc.Name, ifc.Network.Ref, err))
		}
	}
	return errors.Join(failed...)
}

// withoutGoneNamespace empties Netns when there is no such namespace: after a
// reboot the path may be another sandbox's.
func (s *Service) withoutGoneNamespace(rec *Record) *Record {
	if !s.namespaceGone(rec) {
		return rec
	}
	rec = rec.Clone()
	rec.Netns = ""
	return rec
}

// namespaceGone is false when it cannot be told.
func (s *Service) namespaceGone(rec *Record) bool {
	if rec.BootID != s.BootID {
		return true
	}
	there, err := s.Namespaces.Exists(rec.Netns)
	return err == nil && !there
}

// undo takes back an ADD that did not come to its end, the last step first.
// The caller's context may have ended. When a step fails the record stays, and
// with it the addresses: DEL tries again.
func (s *Service) undo(ctx context.Context, rec *Record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := s.unplug(ctx, rec); err != nil {
		return fmt.Errorf("roll back sandbox %s: %w", rec.ContainerID, err)
	}
	return s.forget(rec)
}

// forget drops the record of a sandbox without interfaces, then its addresses.
// The other way round an address could be another Pod's while a record says
// that it is this one's, and DEL would give it back a second time.
func (s *Service) forget(rec *Record) error {
	if err := s.Journal.Delete(rec.ContainerID, rec.IfName); err != nil && !s.gone(rec) {
		return fmt.Errorf("forget sandbox %s: %w", rec.ContainerID, err)
	}
	for i := range slices.Backward(rec.Interfaces) {
		s.discard(&rec.Interfaces[i])
	}
	return nil
}

// gone reports whether a record is not there, whatever its deletion said: then
// no DEL will find it, and nobody but us can give its addresses back.
func (s *Service) gone(rec *Record) bool {
	_, err := s.Journal.Get(rec.ContainerID, rec.IfName)
	return errors.Is(err, ErrNotFound)
}

// discard gives back what claim gave.
func (s *Service) discard(ifc *Interface) {
	s.Addresses.Discard(&ifc.Network, ifc.V4.Addr(), ifc.V6.Addr())
}
