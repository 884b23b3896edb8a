// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"testing"
)

func TestRunRefusesUnknownFlags(t *testing.T) {
	t.Parallel()
	if err := run(t.Context(), []string{"-no-such-flag"}, io.Discard); err == nil {
		t.Error("run: got no error")
	}
}

// The figures must be of what they say: claims that the warm pool served, nothing allocated.
func TestClaimsComeFromTheWarmPool(t *testing.T) {
	t.Parallel()
	ns, _, err := timeClaims(t.Context(), 64, 128)
	if err != nil || ns <= 0 {
		t.Errorf("from the warm pool: got %v ns, %v", ns, err)
	}
	if ns, _, err = timeClaims(t.Context(), 8, -1); err != nil || ns <= 0 {
		t.Errorf("by a write: got %v ns, %v", ns, err)
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	sizes, held, err := sizesOf(t.Context(), options{networks: 2, nodes: 3}, 4, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range sizes {
		if sizes[i] < 300 || held[i] < 1 {
			t.Errorf("network %d: got %v bytes and %v held addresses per node", i, sizes[i], held[i])
		}
	}
	for _, b := range bitmaps() {
		size, err := sizeOf(withBitmap(b))
		if err != nil || size < 200 || size > 14<<10 {
			t.Errorf("%s: got %v bytes, %v", b.name, size, err)
		}
	}
}
