// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
)

// Del takes the sandbox's interfaces away, from the journal alone. It ends an
// ADD of the same sandbox that is under way. A sandbox that is not known is no
// error. Addresses and DanmEps are given back in the background.
func (s *Service) Del(ctx context.Context, req Request) error {
	if err := req.checkKey(); err != nil {
		return err
	}
	leave, err := s.sandboxes.enterDel(ctx, req.ContainerID)
	if err != nil {
		return fmt.Errorf("wait for sandbox %s: %w", req.ContainerID, patience(err))
	}
	defer leave()
	rec, err := s.Journal.Get(req.ContainerID, req.IfName)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("read record of sandbox %s: %w", req.ContainerID, err)
	}
	return s.detach(ctx, rec)
}

// detach brings a record to its end from wherever it is.
func (s *Service) detach(ctx context.Context, rec *Record) error {
	switch rec.State {
	case Attaching:
		return s.undo(ctx, rec)
	case Released:
		s.Publisher.Release(rec)
		return nil
	}
	if err := s.unplug(ctx, rec); err != nil {
		// Only now: DEL usually succeeds, and this would be a write more.
		rec.State = Detaching
		return patience(errors.Join(err, s.Journal.Put(rec)))
	}
	rec.State = Released
	if err := s.Journal.Put(rec); err != nil {
		return fmt.Errorf("journal the end of sandbox %s: %w", rec.ContainerID, err)
	}
	s.Publisher.Release(rec)
	return nil
}
