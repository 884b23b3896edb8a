// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"time"

	"github.com/patchbay-cni/patchbay/cni/alive"
	"github.com/patchbay-cni/patchbay/cni/wire"
)

// beat touches the heartbeat until ctx ends, and then once more: the minute
// that a restart may take begins with the end.
func (s *Server) beat(ctx context.Context) {
	path := wire.AlivePath(s.Socket)
	ticker := time.NewTicker(s.Limits.Heartbeat)
	defer ticker.Stop()
	for {
		if err := alive.Touch(path); err != nil {
			s.Log.Error(err, "heartbeat")
		}
		if ctx.Err() != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}
