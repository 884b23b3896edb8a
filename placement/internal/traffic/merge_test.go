// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/traffic"
)

// segment reaches east, west and south, whose pools are 10.0.1.0/24, 10.0.2.0/24 and 10.0.3.0/24.
func segment(t interface{ Fatal(args ...any) }) *traffic.Segment {
	networks := map[string]traffic.Network{}
	for i, name := range []string{"east", "west", "south"} {
		networks[name] = onVLAN(7, "10.0.0.0/16", fmt.Sprintf("10.0.%d.0", i+1), fmt.Sprintf("10.0.%d.255", i+1))
	}
	s, err := traffic.NewSegment(networks)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// servicePorts are the ports of the Service in all clusters.
func servicePorts() map[string][]v1alpha1.TrafficPort {
	ports := map[string][]v1alpha1.TrafficPort{}
	for _, cluster := range []string{"east", "west", "south"} {
		ports[cluster] = []v1alpha1.TrafficPort{{Name: "http", Protocol: "TCP", AppProtocol: "h2c"}, {Name: "dns", Protocol: "UDP"}}
	}
	return ports
}

// of returns endpoints of a workload.
func of(work string, addresses ...string) v1alpha1.TrafficEndpoints {
	return v1alpha1.TrafficEndpoints{Work: work, Addresses: addresses, Ports: []v1alpha1.TrafficPort{{Name: "http", Protocol: "TCP", Port: new(int32(80))}}}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	type reports = map[string][]v1alpha1.TrafficEndpoints
	for name, tc := range map[string]struct {
		reason    string
		reports   reports
		withdrawn []v1alpha1.WithdrawnTraffic
		lost      map[string]bool
		west      string // the addresses that west gets
		conflicts string
	}{
		"Others":    {reason: "A cluster gets the endpoints of the others, not its own.", reports: reports{"east": {of("a", "10.0.1.1")}, "west": {of("a", "10.0.2.1")}}, west: "10.0.1.1"},
		"Static":    {reason: "A static address outside of all pools is taken.", reports: reports{"east": {of("a", "10.0.9.1")}, "west": nil}, west: "10.0.9.1"},
		"Outside":   {reason: "A stolen cluster must not send traffic out of the network.", reports: reports{"east": {of("a", "10.1.0.1", "8.8.8.8", "127.0.0.1", "no address")}, "west": nil}},
		"Zeros":     {reason: "Two texts of one address would hide a duplicate.", reports: reports{"east": {of("a", "::ffff:10.0.1.1")}, "west": nil}},
		"Pool":      {reason: "An address in another cluster's pool may be that cluster's.", reports: reports{"east": {of("a", "10.0.3.1", "10.0.1.1")}, "west": nil}, west: "10.0.1.1", conflicts: "10.0.3.1 of east is in the pool of south"},
		"Victim":    {reason: "A stolen cluster must not suppress another cluster's address.", reports: reports{"east": {of("a", "10.0.1.1")}, "south": {of("a", "10.0.1.1")}, "west": nil}, west: "10.0.1.1", conflicts: "10.0.1.1 of south is in the pool of east"},
		"Twice":     {reason: "Which cluster has a static address is not known.", reports: reports{"east": {of("a", "10.0.9.1")}, "south": {of("b", "10.0.9.1")}, "west": nil}, conflicts: "10.0.9.1 is in east and in south"},
		"Withdrawn": {reason: "Only the workload that leaves is withdrawn.", reports: reports{"east": {of("a", "10.0.1.1"), of("b", "10.0.1.2")}, "south": {of("a", "10.0.3.1")}, "west": nil}, withdrawn: []v1alpha1.WithdrawnTraffic{{Cluster: "east", Work: "a"}}, west: "10.0.1.2 10.0.3.1"},
		"Lost":      {reason: "A lost cluster has no endpoints.", reports: reports{"east": {of("a", "10.0.1.1")}, "south": {of("a", "10.0.3.1")}, "west": nil}, lost: map[string]bool{"east": true}, west: "10.0.3.1"},
		"Elsewhere": {reason: "The segment does not reach the cluster.", reports: reports{"north": {of("a", "10.0.9.1")}, "west": nil}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := traffic.Merge(traffic.Input{Segment: segment(t), Ports: servicePorts(), Reports: tc.reports, Withdrawn: tc.withdrawn, Lost: tc.lost})
			var west []string
			for _, e := range out.Endpoints["west"] {
				west = append(west, e.Addresses...)
			}
			slices.Sort(west)
			if got := strings.Join(west, " "); got != tc.west {
				t.Errorf("%s: west gets %q, want %q", tc.reason, got, tc.west)
			}
			if got := strings.Join(out.Conflicts, "; "); got != tc.conflicts {
				t.Errorf("%s: conflicts %q, want %q", tc.reason, got, tc.conflicts)
			}
			if _, ok := out.Endpoints["north"]; ok {
				t.Error("a cluster that the segment does not reach gets endpoints")
			}
		})
	}
}

func TestMergeIsBounded(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 300 {
		many = append(many, fmt.Sprintf("10.0.%d.%d", 10+i/250, i%250))
	}
	out := traffic.Merge(traffic.Input{Segment: segment(t), Ports: servicePorts(), Reports: map[string][]v1alpha1.TrafficEndpoints{
		"east": {of("a", many...)}, "south": {of("a", "10.0.3.1")}, "west": nil,
	}})
	if out.Truncated != "" {
		t.Errorf("301 addresses: %s gets not all", out.Truncated)
	}
	bounded, truncated := traffic.Bound([]v1alpha1.TrafficEndpoints{of("a", many...), of("b", many...)})
	if !truncated || len(bounded) != 2 || len(bounded[0].Addresses) != traffic.MaxAddresses/2 || len(bounded[1].Addresses) != traffic.MaxAddresses/2 {
		t.Errorf("600 addresses: truncated %t, %d groups", truncated, len(bounded))
	}
	var groups []v1alpha1.TrafficEndpoints
	for i := range traffic.MaxGroups + 1 {
		groups = append(groups, of(fmt.Sprint(i), "10.0.1.1"))
	}
	if bounded, truncated = traffic.Bound(groups); !truncated || len(bounded) != traffic.MaxGroups {
		t.Errorf("%d groups: truncated %t, %d groups", len(groups), truncated, len(bounded))
	}
}

// A stolen cluster whose name comes first must not suppress what others report, whatever it reports.
func TestNoClusterTakesTheRoomOfOthers(t *testing.T) {
	t.Parallel()
	networks := map[string]traffic.Network{}
	reports, ports := map[string][]v1alpha1.TrafficEndpoints{}, map[string][]v1alpha1.TrafficPort{}
	for i := range 40 {
		name := fmt.Sprintf("c%02d", i)
		networks[name], ports[name] = onVLAN(7, "10.0.0.0/8", fmt.Sprintf("10.1.%d.0", i), fmt.Sprintf("10.1.%d.255", i)), servicePorts()["east"]
		if i < 20 {
			reports[name] = []v1alpha1.TrafficEndpoints{of("a", fmt.Sprintf("10.1.%d.1", i))}
		}
	}
	s, err := traffic.NewSegment(networks)
	if err != nil {
		t.Fatal(err)
	}
	var static []string
	for i := range 500 {
		static = append(static, fmt.Sprintf("10.9.%d.%d", i/250, i%250))
	}
	received := func(to string) map[v1alpha1.ClusterName]int {
		counts := map[v1alpha1.ClusterName]int{}
		for _, e := range traffic.Merge(traffic.Input{Segment: s, Reports: reports, Ports: ports, Replacements: map[traffic.Replacement]bool{{Cluster: "c39", Work: "a"}: true}}).Endpoints[to] {
			counts[e.Cluster] += len(e.Addresses)
		}
		return counts
	}
	reports["c00"] = nil
	for i := range 32 { // as many groups as a report may have
		reports["c00"] = append(reports["c00"], of(fmt.Sprintf("w%02d", i), static...))
	}
	for cluster, n := range received("c01") {
		if cluster != "c00" && n != 1 {
			t.Errorf("c01 gets %d addresses of %s, want 1", n, cluster)
		}
	}
	if got := received("c01"); len(got) != 19 || got["c00"] == 0 {
		t.Errorf("c01 gets %v, want some of all others", got)
	}
	for i := 20; i < 40; i++ {
		reports[fmt.Sprintf("c%02d", i)] = []v1alpha1.TrafficEndpoints{of("a", fmt.Sprintf("10.1.%d.1", i))}
	}
	if got := received("c01"); len(got) != traffic.MaxGroups || got["c39"] != 1 {
		t.Errorf("there is room for 32 of 39 clusters: c01 gets %v, want c39, which replaces one that leaves", got)
	}
	many := func(n int) (addresses []string) {
		for i := range 300 {
			addresses = append(addresses, fmt.Sprintf("10.%d.%d.%d", n, i/250, i%250))
		}
		return addresses
	}
	reports = map[string][]v1alpha1.TrafficEndpoints{"c02": {of("a", many(20)...)}, "c03": {of("a", many(30)...)}, "c01": nil}
	if got := received("c01"); got["c02"] != 250 || got["c03"] != 250 {
		t.Errorf("c01 gets %v, want as many of each cluster", got)
	}
}

// A stolen cluster reports ports that the Service does not have: the other clusters could not write them.
func TestMergeTakesPortsOfTheService(t *testing.T) {
	t.Parallel()
	number := new(int32(8080))
	http := v1alpha1.TrafficPort{Name: "http", Protocol: "TCP", Port: number, AppProtocol: "h2c"}
	for name, tc := range map[string]struct {
		reason string
		ports  []v1alpha1.TrafficPort
		want   []v1alpha1.TrafficPort // nil: the endpoints go nowhere
	}{
		"All":         {reason: "The numbers are the Pods'.", ports: []v1alpha1.TrafficPort{http, {Name: "dns", Protocol: "UDP", Port: number}}, want: []v1alpha1.TrafficPort{http, {Name: "dns", Protocol: "UDP", Port: number}}},
		"Some":        {reason: "A Pod may lack a named port.", ports: []v1alpha1.TrafficPort{http}, want: []v1alpha1.TrafficPort{http}},
		"Name":        {reason: "The Service has no such port.", ports: []v1alpha1.TrafficPort{http, {Name: "A_b", Protocol: "TCP", Port: number}}},
		"Protocol":    {reason: "There is no such protocol.", ports: []v1alpha1.TrafficPort{{Name: "http", Protocol: "XXX", Port: number}}},
		"Twice":       {reason: "The names of ports must differ.", ports: []v1alpha1.TrafficPort{http, http}},
		"AppProtocol": {reason: "The Service says what it is.", ports: []v1alpha1.TrafficPort{{Name: "http", Protocol: "TCP", Port: number, AppProtocol: "/ /"}}, want: []v1alpha1.TrafficPort{http}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := v1alpha1.TrafficEndpoints{Work: "a", Addresses: []string{"10.0.1.1"}, Ports: tc.ports}
			out := traffic.Merge(traffic.Input{Segment: segment(t), Ports: servicePorts(), Reports: map[string][]v1alpha1.TrafficEndpoints{"east": {e}, "west": nil}})
			var got []v1alpha1.TrafficPort
			for _, e := range out.Endpoints["west"] {
				got = append(got, e.Ports...)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: west gets other ports (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// Whatever clusters report: the result does not depend on the order of anything, no cluster gets an address outside of
// the network, of a pool of a cluster that has not reported it, of itself, or one that is withdrawn, and no address is
// of two clusters.
func TestMergeTrustsNoReport(t *testing.T) {
	t.Parallel()
	pools := map[string]netip.Prefix{"east": netip.MustParsePrefix("10.0.1.0/24"), "west": netip.MustParsePrefix("10.0.2.0/24"), "south": netip.MustParsePrefix("10.0.3.0/24")}
	rapid.Check(t, func(t *rapid.T) {
		address := rapid.Custom(func(t *rapid.T) string {
			return fmt.Sprintf("10.%d.%d.%d", rapid.IntRange(0, 1).Draw(t, "net"), rapid.IntRange(1, 4).Draw(t, "pool"), rapid.IntRange(1, 3).Draw(t, "host"))
		})
		in := traffic.Input{Segment: segment(t), Ports: servicePorts(), Reports: map[string][]v1alpha1.TrafficEndpoints{}, Lost: map[string]bool{}}
		for cluster := range pools {
			for _, work := range []string{"a", "b"} {
				in.Reports[cluster] = append(in.Reports[cluster], of(work, rapid.SliceOfDistinct(address, rapid.ID[string]).Draw(t, cluster+work)...))
			}
			if rapid.Bool().Draw(t, "withdrawn") {
				in.Withdrawn = append(in.Withdrawn, v1alpha1.WithdrawnTraffic{Cluster: v1alpha1.ClusterName(cluster), Work: "a"})
			}
			in.Lost[cluster] = rapid.IntRange(0, 3).Draw(t, "lost") == 0
		}
		out := traffic.Merge(in)
		for range 3 {
			if diff := cmp.Diff(out, traffic.Merge(in)); diff != "" {
				t.Fatalf("the same input has another result (-first +later):\n%s", diff)
			}
		}
		owner := map[string]v1alpha1.ClusterName{}
		for to, all := range out.Endpoints {
			for _, e := range all {
				if string(e.Cluster) == to || in.Lost[string(e.Cluster)] || slices.ContainsFunc(in.Withdrawn, func(w v1alpha1.WithdrawnTraffic) bool { return w.Cluster == e.Cluster && w.Work == e.Work }) {
					t.Fatalf("%s gets %+v", to, e)
				}
				for _, text := range e.Addresses {
					a := netip.MustParseAddr(text)
					for cluster, pool := range pools {
						if pool.Contains(a) && cluster != string(e.Cluster) {
							t.Fatalf("%s gets %s of %s, which is in the pool of %s", to, a, e.Cluster, cluster)
						}
					}
					if other, ok := owner[text]; !netip.MustParsePrefix("10.0.0.0/16").Contains(a) || ok && other != e.Cluster {
						t.Fatalf("%s gets %s of %s and of %s", to, a, e.Cluster, other)
					}
					owner[text] = e.Cluster
				}
			}
		}
	})
}
