// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/patchbay-cni/patchbay/test/bench/measure"
	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
)

// reportClaimSources prints the sources of all claimed addresses, and then measures ADDs while the API
// server is paused, which shows that they do not wait for it.
func (c *benchCluster) reportClaimSources(ctx context.Context, patchbay contender, netns string, out io.Writer) error {
	fromWarmPool, committed, err := c.claimCounts(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "in the cluster, %d addresses came from the warm pool, and %d from a write that their ADDs waited for\n", fromWarmPool, committed)
	adds, err := c.addDuringOutage(ctx, patchbay, netns)
	if err != nil {
		return err
	}
	_, after, err := c.claimCounts(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "with a paused API server: %d successful ADDs, p50 %s ms, %d API writes before their responses\n",
		len(adds), measure.Figure(measure.Millis(measure.Quantile(adds, 0.5))), after-committed)
	return nil
}

// outageADDs is less than the size of a filled warm pool.
const outageADDs = 10

// addDuringOutage measures ADDs while the API server is paused. It resumes the API server before each DEL.
func (c *benchCluster) addDuringOutage(ctx context.Context, patchbay contender, netns string) (adds []time.Duration, err error) {
	const run = 1000 // no other run has this number
	for i := range outageADDs {
		box := patchbay.sandbox(run, i, netns)
		if err := c.env.ControlPlane.Pause(ctx, controlplane.APIServer); err != nil {
			return nil, err
		}
		took, err := patchbay.execPlugin(ctx, "ADD", box)
		if err := errors.Join(err, c.env.ControlPlane.Resume(controlplane.APIServer)); err != nil {
			return nil, fmt.Errorf("with a paused API server: %w", err)
		}
		if _, err := patchbay.execPlugin(ctx, "DEL", box); err != nil {
			return nil, err
		}
		adds = append(adds, took)
	}
	return adds, nil
}

// claimCounts returns the daemon's numbers of claims without and with a write.
func (c *benchCluster) claimCounts(ctx context.Context) (fromWarmPool, committed int, err error) {
	text, err := c.scraper.Metrics(ctx, daemonMetrics)
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(text) {
		_, _ = fmt.Sscanf(line, `patchbay_claims_total{source="warm_pool"} %d`, &fromWarmPool)
		_, _ = fmt.Sscanf(line, `patchbay_claims_total{source="commit"} %d`, &committed)
	}
	return fromWarmPool, committed, nil
}
