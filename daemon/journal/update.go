// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"fmt"

	"github.com/patchbay-cni/patchbay/daemon/attach"
)

// Update changes a record in the transaction that reads it, so that two writers
// who each know a part of it lose nothing of each other's. It returns what edit
// returns and leaves the record as it was then; attach.ErrNotFound when there is
// none. Edit must not change the record's key.
func (j *Journal) Update(containerID, ifName string, edit func(*attach.Record) error) error {
	k, err := key(containerID, ifName)
	if err != nil {
		return err
	}
	var own error
	err = j.commit.apply(change{key: k, edit: func(stored []byte) []byte {
		var value []byte
		value, own = edited(k, stored, edit)
		return value
	}})
	if err == nil {
		err = own
	}
	if err != nil {
		return fmt.Errorf("update record %q: %w", showKey(k), err)
	}
	return nil
}

// edited is the stored value of a record after edit.
func edited(k, stored []byte, edit func(*attach.Record) error) ([]byte, error) {
	if stored == nil {
		return nil, attach.ErrNotFound
	}
	rec, err := decode(k, stored)
	if err != nil {
		return nil, err
	}
	if err := edit(rec); err != nil {
		return nil, err
	}
	return encode(rec)
}
