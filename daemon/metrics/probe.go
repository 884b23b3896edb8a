// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/patchbay-cni/patchbay/daemon/attach"
)

// Prober measures address conflict probes.
func (m *Metrics) Prober(p attach.Prober) attach.Prober { return prober{p, m} }

// prober is one that is measured.
type prober struct {
	prober  attach.Prober
	metrics *Metrics
}

// Probe implements attach.Prober.
func (p prober) Probe(ctx context.Context, parent string, addrs []netip.Addr) (map[netip.Addr]net.HardwareAddr, error) {
	start, result := time.Now(), "free"
	macs, err := p.prober.Probe(ctx, parent, addrs)
	switch {
	case err != nil:
		result = "error"
	case len(macs) > 0:
		result = "conflict"
	}
	p.metrics.probes.WithLabelValues(result).Observe(time.Since(start).Seconds())
	return macs, err
}
