// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/patchbay-cni/patchbay/test/bench/measure"
	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
)

// reportClaimSources prints where the addresses of all ADDs came from, and shows that none of them
// waits for the API server: it is frozen while some more are made.
func (c *benchCluster) reportClaimSources(ctx context.Context, us contender, netns string, out io.Writer) error {
	fromHold, committed, err := c.claimCounts(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "in the cluster, %d addresses came from the hold, and %d, the first ones, by a write that their ADDs waited for\n", fromHold, committed)
	adds, err := c.addDuringOutage(ctx, us, netns)
	if err != nil {
		return err
	}
	_, after, err := c.claimCounts(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "with a frozen API server: %d ADDs answered, p50 %s ms, %d API writes before their answers\n",
		len(adds), measure.Figure(measure.Millis(measure.Quantile(adds, 0.5))), after-committed)
	return nil
}

// outageADDs are fewer than a hold that is warm has.
const outageADDs = 10

// addDuringOutage makes ADDs while the API server is stopped in its tracks, and their DELs
// after that.
func (c *benchCluster) addDuringOutage(ctx context.Context, us contender, netns string) (adds []time.Duration, err error) {
	const run = 1000 // no other has this number
	for i := range outageADDs {
		box := us.sandbox(run, i, netns)
		if err := c.env.ControlPlane.Pause(ctx, controlplane.APIServer); err != nil {
			return nil, err
		}
		took, err := us.execPlugin(ctx, "ADD", box)
		if err := errors.Join(err, c.env.ControlPlane.Resume(controlplane.APIServer)); err != nil {
			return nil, fmt.Errorf("with a frozen API server: %w", err)
		}
		if _, err := us.execPlugin(ctx, "DEL", box); err != nil {
			return nil, err
		}
		adds = append(adds, took)
	}
	return adds, nil
}

// claimCounts returns how many claims of the daemon were served without and with a write.
func (c *benchCluster) claimCounts(ctx context.Context) (fromHold, committed int, err error) {
	text, err := c.scraper.Metrics(ctx, daemonMetrics)
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(text) {
		_, _ = fmt.Sscanf(line, `patchbay_claims_total{source="warm_pool"} %d`, &fromHold)
		_, _ = fmt.Sscanf(line, `patchbay_claims_total{source="commit"} %d`, &committed)
	}
	return fromHold, committed, nil
}

// get asks the daemon's HTTP server.
func get(ctx context.Context, path string) (body []byte, status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+daemonHTTP+path, nil)
	if err != nil {
		return nil, 0, fmt.Errorf("ask for %s: %w", path, err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, 0, fmt.Errorf("ask for %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	body, err = io.ReadAll(res.Body)
	return body, res.StatusCode, err
}
