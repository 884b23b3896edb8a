// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/patchbay-cni/patchbay/controller/internal/webhook/cert"
)

// A replica that has no certificate yet must not look like one whose certificate has expired in 1970.
func TestCertificateExpiryIsUnknownAtFirst(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	registerCertificateExpiry(r, cert.NewRotator(cert.Config{}))
	families, err := r.Gather()
	if err != nil || len(families) != 1 || len(families[0].GetMetric()) != 1 {
		t.Fatalf("got %v and error %v, want one metric", families, err)
	}
	if value := families[0].GetMetric()[0].GetGauge().GetValue(); !math.IsNaN(value) {
		t.Errorf("got %v, want NaN", value)
	}
}
