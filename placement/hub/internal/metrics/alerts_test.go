// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/source"
)

const (
	// scrapeInterval is the time between two scrapes of the hub.
	scrapeInterval = 30 * time.Second
	// faultAt and mendedAt are when the faults of a scenario begin and end.
	faultAt, mendedAt = 10 * time.Minute, 50 * time.Minute
)

// scenario is what a hub sees in an hour.
type scenario struct {
	reason string
	// fault changes the state of the hub at each scrape while there is the fault.
	fault func(h *alertHub)
	// want are the alerts after the fault has lasted for 40 minutes.
	want []string
}

func scenarios() []scenario {
	blocked := metav1.Condition{Type: v1alpha1.ConditionMoveBlocked, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonStalled}
	return []scenario{
		{"Orders are carried out, objects move, and heartbeats come.", func(*alertHub) {}, nil},
		{
			"The agent has ended: that is one alert, also while it has orders to carry out.",
			func(h *alertHub) { h.silent, h.deaf = true, true },
			[]string{"PatchbayClusterSilent cluster=a"},
		},
		{
			"The agent cannot read its cluster.", func(h *alertHub) { h.blind = true },
			[]string{"PatchbayAgentLags cluster=a"},
		},
		{
			"The agent carries out no orders.", func(h *alertHub) { h.deaf = true },
			[]string{"PatchbayWorksBehind cluster=a"},
		},
		{
			"A move waits.", func(h *alertHub) { h.setAssignment(moving(blocked)) },
			[]string{"PatchbayMovesBlocked reason=Stalled"},
		},
		{
			"A move waits now and then.", func(h *alertHub) {
				if h.since(faultAt)%(20*time.Minute) < 10*time.Minute {
					h.setAssignment(moving(blocked))
				}
			}, nil,
		},
		{
			"An object cannot leave.", func(h *alertHub) {
				h.setCluster(cluster(v1alpha1.ConditionDrained, metav1.ConditionFalse, v1alpha1.ReasonDrainBlocked))
			},
			[]string{"PatchbayDrainBlocked cluster=a"},
		},
		{
			"A drain makes progress.", func(h *alertHub) {
				h.setCluster(cluster(v1alpha1.ConditionDrained, metav1.ConditionFalse, v1alpha1.ReasonDraining))
			}, nil,
		},
		{
			"The hub was restored.", func(h *alertHub) {
				h.setCluster(cluster(v1alpha1.ConditionHubMismatch, metav1.ConditionTrue, v1alpha1.ReasonHubMismatch))
			},
			[]string{"PatchbayHubMismatch cluster=a"},
		},
	}
}

// alertHub is a hub with one cluster, in a scenario.
type alertHub struct {
	*hub

	silent, blind, deaf bool
	object, work        client.Object
	cluster             client.Object
}

// since returns how long ago a time of the scenario was.
func (h *alertHub) since(at time.Duration) time.Duration { return h.now.Sub(start) - at }

func (h *alertHub) setAssignment(a *v1alpha1.Assignment) { h.replace(&h.object, a) }
func (h *alertHub) setCluster(c *v1alpha1.Cluster)       { h.replace(&h.cluster, c) }
func (h *alertHub) setWork(w *v1alpha1.Work)             { h.replace(&h.work, w) }

func (h *alertHub) replace(stored *client.Object, next client.Object) {
	h.change(*stored, next)
	*stored = next
}

// step is what happens between two scrapes: the hub orders something, and the agent reports on the last order, unless
// a fault keeps it from that.
func (h *alertHub) step(i int, fault func(*alertHub)) {
	h.silent, h.blind, h.deaf = false, false, false
	h.setCluster(cluster(v1alpha1.ConditionReachable, metav1.ConditionTrue, v1alpha1.ReasonHeartbeatReceived))
	moves := settled(1, metav1.Condition{Type: v1alpha1.ConditionPlaced, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAsExpected})
	if i%2 == 0 {
		moves = moving(moves.Status.Conditions...)
	}
	h.setAssignment(moves)
	if at := h.since(0); at >= faultAt && at < mendedAt {
		fault(h)
	}
	if !h.silent {
		h.heartbeats = map[string]time.Time{"a": h.now}
	}
	if !h.silent && !h.blind {
		h.reported = map[string]time.Time{"a": h.now.Add(-20 * time.Second)}
	}
	last := int64(0)
	if before, ok := h.work.(*v1alpha1.Work); ok {
		last = before.Status.Revision
	}
	if !h.deaf {
		last = int64(i)
	}
	h.setWork(work("a", int64(i)+1, last, v1alpha1.ReasonAsExpected)) // one order is always on its way
}

// sample is a sample of a series, for test/promql.
type sample struct {
	Labels map[string]string `json:"labels"`
	Value  float64           `json:"value"`
}

// scrape returns the gauges of the hub. They are on its page of metrics.
func (h *alertHub) scrape() (samples []sample) {
	h.t.Helper()
	families, err := h.registry.Gather()
	if err != nil {
		h.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if m.GetGauge() == nil {
				continue
			}
			labels := map[string]string{"__name__": f.GetName(), "instance": "hub-0"}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			samples = append(samples, sample{labels, m.GetGauge().GetValue()})
		}
	}
	return samples
}

// Each alert fires on its fault, which no other alert reports, and ends with it. The engine of Prometheus evaluates
// the alerts over the hub's own metrics.
func TestAlerts(t *testing.T) {
	t.Parallel()
	rules := alertRules(t)
	input := map[string]any{
		"rules": rules, "interval": int64(scrapeInterval.Seconds()), "start": start.Unix(),
	}
	scrapes := map[string][][]sample{}
	for _, tc := range scenarios() {
		h := &alertHub{hub: newHub(t)}
		var all [][]sample
		for i := 0; h.since(0) < time.Hour; i++ {
			h.step(i, tc.fault)
			all = append(all, h.scrape())
			if h.now = h.now.Add(scrapeInterval); h.since(0) == mendedAt {
				scrapes[tc.reason] = slices.Clone(all)
			}
		}
		scrapes["after: "+tc.reason] = all
	}
	input["scenarios"] = scrapes
	firing := evaluate(t, input)
	fired := map[string]bool{}
	for _, tc := range scenarios() {
		if got := firing[tc.reason]; !slices.Equal(got, tc.want) {
			t.Errorf("%s got the alerts %v, want %v", tc.reason, got, tc.want)
		}
		if got := firing["after: "+tc.reason]; len(got) > 0 {
			t.Errorf("%s the fault has ended: got the alerts %v, want none", tc.reason, got)
		}
		for _, text := range firing[tc.reason] {
			name, _, _ := strings.Cut(text, " ")
			fired[name] = true
		}
	}
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(rules, -1) {
		if !fired[m[1]] {
			t.Errorf("alert %s: no scenario makes it fire", m[1])
		}
	}
}

// alertRules returns the rule file that the manifest has.
func alertRules(t *testing.T) string {
	t.Helper()
	path, err := source.Path("deployments/placement/alerts/prometheusrule.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Spec any `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	rules, err := yaml.Marshal(manifest.Spec)
	if err != nil {
		t.Fatal(err)
	}
	return string(rules)
}

// evaluate returns the alerts that fire at the end of each scenario.
func evaluate(t *testing.T, input any) map[string][]string {
	t.Helper()
	folder, err := source.Path("test/promql")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), "go", "run", ".")
	run.Dir, run.Env = folder, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false -trimpath")
	run.Stdin = bytes.NewReader(text)
	var stderr strings.Builder
	run.Stderr = &stderr
	out, err := run.Output()
	if err != nil {
		t.Fatalf("%s in %s: %v: %s", run, folder, err, stderr.String())
	}
	var firing map[string][]struct {
		Name   string
		Labels map[string]string
	}
	if err := json.Unmarshal(out, &firing); err != nil {
		t.Fatal(err)
	}
	texts := map[string][]string{}
	for scenario, alerts := range firing {
		for _, a := range alerts {
			text := a.Name
			for name, value := range a.Labels {
				text += fmt.Sprintf(" %s=%s", name, value)
			}
			texts[scenario] = append(texts[scenario], text)
		}
	}
	return texts
}
