// SPDX-License-Identifier: Apache-2.0

// Package journaltest reads the journal of a node's daemon. Tests that run the daemon as a program
// use it.
package journaltest

import (
	"context"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/journal"
)

// Path is the default path of a daemon's journal.
const Path = journal.DefaultPath

// Record is the record of a sandbox.
type Record = attach.Record

// Read returns the records of a journal. No daemon may have it open.
func Read(ctx context.Context, path string) ([]*Record, error) {
	j, err := journal.OpenContext(ctx, path, journal.Options{Holder: "test"})
	if err != nil {
		return nil, err
	}
	defer j.Close()
	return j.List()
}
