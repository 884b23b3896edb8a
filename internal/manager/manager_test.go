// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	crmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/patchbay-cni/patchbay/internal/manager"
)

// fakeManager is a manager whose Start is a function of the test.
type fakeManager struct {
	crmanager.Manager

	start func(context.Context) error
}

func (m fakeManager) Start(ctx context.Context) error { return m.start(ctx) }

// After the program was asked to stop, an error of the manager is no failure, unless a part did not
// stop in time.
func TestRun(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	late := fmt.Errorf("failed waiting for all runnables to end: %w", context.DeadlineExceeded)
	cases := map[string]struct {
		reason    string
		stopped   bool
		err, want error
	}{
		"Stopped":  {reason: "The manager stops in order.", stopped: true},
		"Starting": {reason: "A part was stopped while it started.", stopped: true, err: broken},
		"Canceled": {reason: "A part returns the context's error.", stopped: true, err: context.Canceled},
		"Stuck":    {reason: "A part that does not stop is a failure.", stopped: true, err: late, want: context.DeadlineExceeded},
		"Broken":   {reason: "The program was not asked to stop.", err: broken, want: broken},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			m := fakeManager{start: func(context.Context) error {
				if tc.stopped {
					cancel()
				}
				return tc.err
			}}
			if err := manager.Run(ctx, m); !errors.Is(err, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
			}
		})
	}
}
