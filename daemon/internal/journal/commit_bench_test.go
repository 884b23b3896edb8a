// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
)

// BenchmarkPut measures the time per Put with one and with several writers. It is shorter with several,
// because they share commits.
func BenchmarkPut(b *testing.B) {
	for _, writers := range []int{1, 16} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			j := open(b, filepath.Join(b.TempDir(), "j"))
			var n atomic.Int64
			b.SetParallelism(writers)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := j.Put(record(fmt.Sprint("c", n.Add(1)%int64(8*writers)), "eth0")); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
