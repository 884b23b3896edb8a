// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"time"

	"github.com/patchbay-cni/patchbay/daemon/attach"
)

// Backend measures a backend. It keeps the optional port attach.Preparer.
func (m *Metrics) Backend(name string, b attach.Backend) attach.Backend {
	measured := &backend{Backend: b, name: name, metrics: m}
	if p, ok := b.(attach.Preparer); ok {
		return struct {
			*backend
			attach.Preparer
		}{measured, p}
	}
	return measured
}

// backend is one that is measured.
type backend struct {
	attach.Backend
	name    string
	metrics *Metrics
}

// Attach implements attach.Backend.
func (b *backend) Attach(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	start := time.Now()
	err := b.Backend.Attach(ctx, rec, ifc)
	b.observe("attach", start, err)
	return err
}

// Detach implements attach.Backend.
func (b *backend) Detach(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	start := time.Now()
	err := b.Backend.Detach(ctx, rec, ifc)
	b.observe("detach", start, err)
	return err
}

func (b *backend) observe(step string, start time.Time, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	b.metrics.backends.WithLabelValues(b.name, step, result).Observe(time.Since(start).Seconds())
}
