// SPDX-License-Identifier: Apache-2.0

// Package journaltest reads the journal of a node's daemon, for tests that drive the daemon from
// outside.
package journaltest

import (
	"context"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/journal"
)

// Path is where a daemon keeps its journal unless its flags say otherwise.
const Path = journal.DefaultPath

// Record is what the journal has of a sandbox.
type Record = attach.Record

// Read returns the records of a journal that no daemon has open, such as a copy.
func Read(ctx context.Context, path string) ([]*Record, error) {
	j, err := journal.OpenContext(ctx, path, journal.Options{Holder: "test"})
	if err != nil {
		return nil, err
	}
	defer j.Close()
	return j.List()
}
