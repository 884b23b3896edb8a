// SPDX-License-Identifier: Apache-2.0

package logging_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/go-logr/logr"

	"github.com/patchbay-cni/patchbay/logging"
)

func TestLogIsJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	ctx, flush := logging.Into(t.Context(), false, &out)
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
