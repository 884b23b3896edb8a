// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"fmt"
	"runtime/debug"
)

// guard runs f and turns a panic into ErrCorrupt. bbolt trusts the pages that
// it maps: damaged ones make it panic, and a file that was cut short faults.
// Either would end the daemon again at every start, without a word on why.
func guard(f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		switch p := recover().(type) {
		case nil:
		case error:
			err = fmt.Errorf("%w: %w", ErrCorrupt, p)
		default:
			err = fmt.Errorf("%w: %v", ErrCorrupt, p)
		}
	}()
	return f()
}
