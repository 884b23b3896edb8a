// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"encoding/json"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// The API server and package network say the same to any network, also to those
// that nobody thought of.
func TestNetworkModelMatchesAPIServer(t *testing.T) {
	t.Parallel()
	atEachVersion(t, func(t *testing.T, env *apitest.Env) {
		t.Helper()
		rapid.Check(t, func(r *rapid.T) {
			draw := rapid.SampledFrom([]func(*rapid.T) v1.NetworkSpec{drawSpec, drawSpec, drawSpec, drawFunctions}).Draw(r, "spec")
			o := &v1.DanmNet{ObjectMeta: metav1.ObjectMeta{Name: "agree", Namespace: "default"}, Spec: draw(r)}
			parsed, refusal := network.FromObject(o)
			err := env.Client.Create(t.Context(), o, client.DryRunAll)
			if err != nil && !apierrors.IsInvalid(err) {
				r.Fatal(err)
			}
			if (err != nil) != (refusal != nil || parsed.Delegates() && hasAddressOptions(o.Spec.Options)) {
				spec, _ := json.Marshal(o.Spec)
				r.Errorf("spec %s\nAPI server: %v\nnetwork:    %v", spec, err, refusal)
			}
		})
	})
}

// hasAddressOptions reports whether options are set that a new network of another CNI plugin must not have.
// A policy rejects them; package network accepts them, because a stored network may have them.
func hasAddressOptions(o v1.NetworkOptions) bool {
	return o.CIDR != "" || o.Net6 != "" || o.RTTables != 0
}

// drawMostlyValid draws one of the good values most of the time.
func drawMostlyValid(r *rapid.T, label string, good, bad []string) string {
	if rapid.IntRange(0, 29).Draw(r, label+" is bad") == 0 {
		return rapid.SampledFrom(bad).Draw(r, label)
	}
	return rapid.SampledFrom(good).Draw(r, label)
}

func drawMostlyValidNumber(r *rapid.T, label string, good, bad []int32) int32 {
	if rapid.IntRange(0, 29).Draw(r, label+" is bad") == 0 {
		return rapid.SampledFrom(bad).Draw(r, label)
	}
	return rapid.SampledFrom(good).Draw(r, label)
}

func drawSpec(r *rapid.T) v1.NetworkSpec {
	return v1.NetworkSpec{
		NetworkID:   drawMostlyValid(r, "NetworkID", []string{"a", "a.b-c_d", "tencharact"}, []string{"elevenchars", "", "../x", "a.", "ä"}),
		NetworkType: drawMostlyValid(r, "NetworkType", []string{"", "ipvlan", "MacVLAN"}, []string{"SRIOV", "bridge", "a/b", "-"}),
		Options:     drawOptions(r),
	}
}

// drawFunctions draws a network of virtual functions.
func drawFunctions(r *rapid.T) v1.NetworkSpec {
	return v1.NetworkSpec{
		NetworkID:   "a",
		NetworkType: drawMostlyValid(r, "NetworkType", []string{"sriov", "SRIOV"}, []string{"", "macvlan", "bridge"}),
		Options: v1.NetworkOptions{
			DevicePool: "a/b",
			VLAN:       drawMostlyValidNumber(r, "vlan", []int32{5}, []int32{0}),
			VXLAN:      drawMostlyValidNumber(r, "vxlan", []int32{0}, []int32{5}),
			MTU:        drawMostlyValidNumber(r, "mtu", []int32{0, 1280, 9216}, []int32{1279}),
			SRIOV: &v1.SRIOVOptions{
				VLANQoS:      drawMostlyValidNumber(r, "vlan_qos", []int32{0, 7}, []int32{8, -1}),
				VLANProtocol: drawMostlyValid(r, "vlan_protocol", []string{"", "802.1q", "802.1AD"}, []string{"802.1", " 802.1q", "8100"}),
				SpoofCheck:   rapid.SampledFrom([]*bool{nil, new(false), new(true)}).Draw(r, "spoof_check"),
				Trust:        rapid.SampledFrom([]*bool{nil, new(false), new(true)}).Draw(r, "trust"),
				LinkState:    drawMostlyValid(r, "link_state", []string{"", "auto", "enable", "disable"}, []string{"up", "AUTO"}),
				MinTxRate:    drawMostlyValidNumber(r, "min_tx_rate", []int32{0, 1, 10}, []int32{-1, 101}),
				MaxTxRate:    drawMostlyValidNumber(r, "max_tx_rate", []int32{0, 10, 100}, []int32{-1, 2147483647}),
				Promiscuous:  rapid.Bool().Draw(r, "promiscuous"),
			},
		},
	}
}

func drawOptions(r *rapid.T) v1.NetworkOptions {
	o := v1.NetworkOptions{
		Device:        drawMostlyValid(r, "host_device", []string{"", "ens4"}, []string{"a b", "a/b", "..", "ääääääää", "a:b", "\u00a0", "\u200b", "ens4.4094"}),
		DevicePool:    drawMostlyValid(r, "device_pool", []string{""}, []string{"a/b", "x"}),
		Prefix:        drawMostlyValid(r, "container_prefix", []string{"", "eth"}, []string{"0", "abcdefghijklmn", "abcdefghijklmno", "a b"}),
		VLAN:          drawMostlyValidNumber(r, "vlan", []int32{0, 0, 0, 1, 4094}, []int32{4095, -1}),
		VXLAN:         drawMostlyValidNumber(r, "vxlan", []int32{0}, []int32{1, 16777214, 16777215}),
		MTU:           drawMostlyValidNumber(r, "mtu", []int32{0, 1280, 9216}, []int32{1279, 9217, -1}),
		RTTables:      drawMostlyValidNumber(r, "rt_tables", []int32{0, 252, 256}, []int32{253, 255, -1}),
		ConflictProbe: rapid.SampledFrom([]*bool{nil, nil, new(false), new(true)}).Draw(r, "conflict_probe"),
		SourceGuard:   rapid.SampledFrom([]*bool{nil, nil, new(false), new(true)}).Draw(r, "source_guard"),
		CIDR:          drawMostlyValid(r, "cidr", []string{"10.0.0.0/24", "10.0.0.9/8", "64.0.0.0/3"}, invalidAddresses()),
		Net6:          drawMostlyValid(r, "net6", []string{"fd00::/64", "fd00::9/16", "::1:0:0:0/80"}, invalidAddresses()),
	}
	if rapid.Bool().Draw(r, "pool") {
		o.Pool = &v1.IPPool{Start: drawAddr(r, "start", ipv4Addresses()), End: drawAddr(r, "end", ipv4Addresses())}
	}
	if rapid.Bool().Draw(r, "pool6") {
		o.Pool6 = &v1.IPPoolV6{
			CIDR:   drawMostlyValid(r, "pool cidr", []string{"", "fd00::/112", "fd00::1:0/112"}, invalidAddresses()),
			IPPool: v1.IPPool{Start: drawAddr(r, "start6", ipv6Addresses()), End: drawAddr(r, "end6", ipv6Addresses())},
		}
	}
	if rapid.IntRange(0, 3).Draw(r, "routes") == 0 {
		dst := drawMostlyValid(r, "dst", []string{"10.1.0.0/16", "0.0.0.0/0"}, invalidAddresses())
		o.Routes = map[string]v1.Gateway{dst: v1.Gateway(drawAddr(r, "gw", ipv4Addresses())), "10.1.2.3/15": "10.0.0.1"}
	}
	if rapid.IntRange(0, 3).Draw(r, "routes6") == 0 {
		dst := drawMostlyValid(r, "dst6", []string{"fd01::/16", "::/0"}, invalidAddresses())
		o.Routes6 = map[string]v1.GatewayV6{dst: v1.GatewayV6(drawAddr(r, "gw6", ipv6Addresses()))}
	}
	if rapid.IntRange(0, 3).Draw(r, "static") == 0 {
		o.StaticPool = []v1.IPRange{}
		for range rapid.IntRange(0, 2).Draw(r, "ranges") {
			draw := rapid.SampledFrom([]func() []string{ipv4Addresses, ipv6Addresses}).Draw(r, "family")
			o.StaticPool = append(o.StaticPool, v1.IPRange{Start: drawAddr(r, "static start", draw()), End: drawAddr(r, "static end", draw())})
		}
	}
	return o
}

// invalidAddresses are texts that are no subnet, or one of another family.
func invalidAddresses() []string {
	return []string{
		"x", "0.0.0.0/0", "127.0.0.0/8", "fe80::/64", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/024", "10.0.0.0/-1", "010.0.0.0/8", "10.0.0.0/8 ", "10.0.0.0/24",
		"fd00::/64", "fd00::/129", "::ffff:10.0.0.0/120", "fe80::%eth0/64", "fd00::/", "/64", "64:ff9b::10.0.0.0/96",
	}
}

func ipv4Addresses() []string {
	return []string{"", "10.0.0.1", "10.0.0.9", "10.0.0.10", "10.0.0.100"}
}

func ipv6Addresses() []string {
	return []string{
		"", "fd00::", "fd00::9", "fd00::A", "fd00::1:0", "fd00:0:0:0:1::", "fd00:0:0:0:0:0:0:b", "FD00::10",
	}
}

func drawAddr(r *rapid.T, label string, good []string) string {
	return drawMostlyValid(r, label, good, []string{
		"1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "fd00::10.0.0.1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
		"10.0.2.1", "9.255.255.255", "128.0.0.1", "127.0.0.1", "x", "10.0.0.256", "10.0.0.01", "::ffff:10.0.0.1", "fe80::1%eth0", "10.0.0.1", "fd00::1", "1.2.3", ":::",
	})
}
