// SPDX-License-Identifier: Apache-2.0

package logging_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/patchbay-cni/patchbay/internal/logging"
)

func TestLogIsJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	ctx, flush := logging.NewContext(t.Context(), false, &out)
	log := logr.FromContextOrDiscard(ctx)
	log.Info("said", "pod", "ns/a")
	log.V(1).Info("not said without --debug")
	flush()
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%q is not one JSON line: %v", out.String(), err)
	}
	if line["msg"] != "said" || line["pod"] != "ns/a" || line["time"] == nil {
		t.Errorf("line is %v", line)
	}
}

// Tests run several programs in one process, and a library's goroutine that ends late must not
// write into the log of a finished test.
func TestNothingIsLoggedAfterStop(t *testing.T) {
	var first, second bytes.Buffer
	ctx, endFirst := logging.NewContext(t.Context(), true, &first)
	klog.Info("early")
	_, endSecond := logging.NewContext(t.Context(), false, &second)
	klog.Info("late")
	endFirst()
	klog.Info("later")
	logr.FromContextOrDiscard(ctx).Info("own")
	endSecond()
	klog.Info("latest")
	cases := map[string]struct {
		reason, log string
		want        []string
	}{
		"First":  {reason: "The first log ends when the second starts.", log: first.String(), want: []string{"early"}},
		"Second": {reason: "The end of the first log must not end the second.", log: second.String(), want: []string{"late", "later"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, said := range []string{"early", "late", "later", "latest", "own"} {
				want := slices.Contains(tc.want, said)
				if got := strings.Contains(tc.log, `"msg":"`+said+`"`); got != want {
					t.Errorf("%s: %q is there: %t, want %t, in %s", tc.reason, said, got, want, tc.log)
				}
			}
		})
	}
}
