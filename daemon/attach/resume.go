// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
)

// resumeWorkers bound the records in work at a time: after a reboot delegates
// run once for each.
const resumeWorkers = 8

// Resume takes up the journal's records when the daemon starts, beside the first
// requests and without the API server: what a reboot or a vanished namespace left
// is cleaned up, what was not published or given back is handed to the Publisher. An ADD that the daemon's end cut off is left to the
// runtime, which asks again or sends DEL. The error names the records that
// could not be taken up; the others were.
func (s *Service) Resume(ctx context.Context) error {
	recs, err := s.Journal.List()
	failed := make([]error, len(recs)+1)
	failed[len(recs)] = err
	var group errgroup.Group
	group.SetLimit(resumeWorkers)
	for i, rec := range recs {
		group.Go(func() error {
			failed[i] = s.resume(ctx, rec)
			return nil
		})
	}
	_ = group.Wait()
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("resume from the journal: %w", err)
	}
	return nil
}

// resume takes up one record, as it is when its turn comes: a DEL may have been
// faster, and its addresses may be another Pod's.
func (s *Service) resume(ctx context.Context, listed *Record) error {
	leave, err := s.sandboxes.enter(ctx, listed.ContainerID)
	if err != nil {
		return fmt.Errorf("sandbox %s: %w", listed.ContainerID, err)
	}
	defer leave()
	rec, err := s.Journal.Get(listed.ContainerID, listed.IfName)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("sandbox %s: %w", listed.ContainerID, err)
	case rec.State == Released:
		s.Publisher.Release(rec)
	case rec.State == Detaching, rec.BootID != s.BootID, rec.State == Attaching && s.namespaceGone(rec):
		return s.detach(ctx, rec)
	case rec.State == Attached && slices.ContainsFunc(rec.Interfaces, unpublished):
		s.Publisher.Publish(rec)
	}
	return nil
}

// unpublished reports whether the API server is not known to have the DanmEp.
func unpublished(ifc Interface) bool { return ifc.EndpointUID == "" }
