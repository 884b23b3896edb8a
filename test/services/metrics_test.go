// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package services

import (
	"context"
	"regexp"
	"testing"

	"github.com/patchbay-cni/patchbay/test/apitest"
)

// leads matches the metric of controller-runtime for a replica that is the leader.
var leads = regexp.MustCompile(`(?m)^leader_election_master_status\{.*\} 1$`)

// What operators alert on has the names and types of the page of metrics.
func TestControllerMetrics(t *testing.T) {
	t.Parallel()
	s := startFixture(t)
	c, err := leader()
	s.must(err)
	s.eventually("the metrics show that the replica leads", func(ctx context.Context) string {
		text, err := c.Metrics(ctx)
		if err != nil {
			return err.Error()
		}
		if err := apitest.CheckMetricsPage("patchbay-controller", text); err != nil {
			return err.Error()
		}
		if !leads.MatchString(text) {
			return "no line matches " + leads.String()
		}
		return ""
	})
}
