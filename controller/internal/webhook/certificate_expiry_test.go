// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/patchbay-cni/patchbay/internal/servingcert"
)

// A replica that has no certificate yet must not look like one whose certificate has expired in 1970.
func TestCertificateExpiryIsUnknownAtFirst(t *testing.T) {
	t.Parallel()
	m := RegisterMetrics(prometheus.NewRegistry())
	if value := m.certificateExpiry(); !math.IsNaN(value) {
		t.Errorf("without admission: got %v, want NaN", value)
	}
	m.rotator.Store(servingcert.NewRotator(servingcert.Config{}))
	if value := m.certificateExpiry(); !math.IsNaN(value) {
		t.Errorf("without a certificate: got %v, want NaN", value)
	}
}
