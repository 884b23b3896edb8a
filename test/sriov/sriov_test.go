// SPDX-License-Identifier: Apache-2.0

//go:build sriovlab

package sriov

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// settings returns the lines of ip(8) about the functions of both physical ones, without MAC addresses.
func settings(ctx context.Context) (string, error) {
	out, err := shared.Exec(ctx, fast, "sh", "-c", "for p in ens4 ens5; do ip link show dev $p; done | grep 'vf '")
	return mac.ReplaceAllString(out, "MAC"), err
}

var mac = regexp.MustCompile(`(?:[0-9a-f]{2}:){5}[0-9a-f]{2}`)

// freeFunctions waits until no Pod has a function, and returns their settings.
func freeFunctions(t *testing.T) (all string) {
	t.Helper()
	await(t, "all functions are free", func(ctx context.Context) string {
		var err error
		if all, err = settings(ctx); err == nil && !strings.Contains(all, "vlan") {
			return ""
		}
		return all + text(err)
	})
	return all
}

// attachedFunctions returns how many functions have the VLAN.
func attachedFunctions(t *testing.T, vlan string) int {
	t.Helper()
	all, err := settings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(all, "vlan "+vlan+",")
}

// checkRestored fails the test if the functions do not become as they were before.
func checkRestored(t *testing.T, before string) {
	t.Helper()
	if diff := cmp.Diff(before, freeFunctions(t)); diff != "" {
		t.Errorf("the functions differ after the Pods: -before +after\n%s", diff)
	}
}

// Seven Pods get the seven functions at once, and what one of them forgot to request. The eighth waits, and
// starts when one of them is gone. It is one long story, since a Pod takes QEMU about twenty seconds.
func TestAllFunctions(t *testing.T) {
	before := freeFunctions(t)
	demo := pod{name: "demo", networks: []string{"default", "first", "second"}}
	forgetful := pod{name: "forgetful", networks: []string{"first"}, noRequest: true}
	all := []pod{demo, forgetful}
	for i := range 5 {
		all = append(all, pod{name: fmt.Sprintf("all-%d", i), networks: []string{"first"}})
	}
	peer := pod{name: "macvlan", networks: []string{"wire"}, node: plain}
	eighth := pod{name: "eighth", networks: []string{"first"}}
	create(t, append(all, peer)...)
	await(t, "seven Pods have a node", func(ctx context.Context) string {
		out, err := shared.Kubectl(ctx, "get", "pods", "--field-selector", "spec.nodeName="+fast, "-o", "name")
		if err == nil && strings.Count(out, "\n") == len(all) {
			return ""
		}
		return out + text(err)
	})
	create(t, eighth)
	eighth.awaitEvent(t, "FailedScheduling", "Insufficient example.com/sriov_ens4")
	awaitRunning(t, append(all, peer)...)
	for vlan, want := range map[string]int{"500": len(all), "501": 1} {
		if n := attachedFunctions(t, vlan); n != want {
			t.Errorf("%d functions have VLAN %s, want %d", n, vlan, want)
		}
	}
	checkTwoPools(t, demo)
	// A function and a MACVLAN interface of a Pod on a node without functions are on one VLAN.
	address := regexp.MustCompile(`10\.50\.0\.\d+`).FindString(peer.exec(t, "ip", "-o", "-4", "address"))
	demo.exec(t, "ping", "-c", "3", "-W", "10", address)

	last := len(all) - 1
	remove(t, all[last])
	awaitRunning(t, eighth)
	remove(t, append(all[:last], eighth, peer)...)
	checkRestored(t, before)
}

// checkTwoPools checks a Pod as in DANM's device_plugin_demo, which has eth0 and functions of two pools.
func checkTwoPools(t *testing.T, p pod) {
	t.Helper()
	var names []string
	for line := range strings.Lines(p.exec(t, "ip", "-o", "link")) {
		name, _, _ := strings.Cut(strings.Fields(line)[1], "@")
		names = append(names, strings.TrimSuffix(name, ":"))
	}
	if diff := cmp.Diff([]string{"lo", "eth0", "first_path1", "second_path2"}, names); diff != "" {
		t.Errorf("the Pod's interfaces: -want +got\n%s", diff)
	}
	if addresses := p.exec(t, "ip", "-o", "-4", "address"); !strings.Contains(addresses, "first_path1    inet 10.50.0.") || !strings.Contains(addresses, "second_path2    inet 10.51.0.") {
		t.Errorf("the Pod's addresses: %s", addresses)
	}
	// The DanmEp of each interface has the address of its function.
	endpoints := get(t, "danmeps", "-o", `jsonpath={range .items[?(@.spec.Pod=="`+p.name+`")]}{.spec.Interface.Name} {.spec.Interface.DeviceID}{"\n"}{end}`)
	for name, parent := range map[string]string{"first_path1": "ens4", "second_path2": "ens5"} {
		functions := onNode(t, "for f in /sys/class/net/"+parent+"/device/virtfn*; do readlink $f; done")
		m := regexp.MustCompile(name + ` (\S+)`).FindStringSubmatch(endpoints)
		if m == nil || !strings.Contains(functions, m[1]) {
			t.Errorf("%s must be a function of %s (%s), the DanmEps have:\n%s", name, parent, strings.Fields(functions), endpoints)
		}
	}
}

// get returns the output of kubectl get.
func get(t *testing.T, args ...string) string {
	t.Helper()
	out, err := shared.Kubectl(t.Context(), append([]string{"get"}, args...)...)
	if err != nil {
		t.Fatalf("get %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

// Kubelet allocates functions twice after it has lost its checkpoint. The Pod that has them keeps them.
func TestLostCheckpoint(t *testing.T) {
	freeFunctions(t)
	owner := pod{name: "owner", networks: []string{"first", "first", "first"}}
	create(t, owner)
	awaitRunning(t, owner)
	own := owner.exec(t, "ip", "-o", "link")
	onNode(t, "rm /var/lib/kubelet/device-plugins/kubelet_internal_checkpoint && kill $(cat /run/service/kubelet.pid)")
	// Until the plugin has registered again, kubelet admits Pods without functions.
	await(t, "the device plugin has registered again", func(ctx context.Context) string {
		out, err := shared.Exec(ctx, fast, "grep", "-c", "Registered", "/run/deviceplugin.log")
		if err == nil && strings.TrimSpace(out) == "4" {
			return ""
		}
		return out + text(err)
	})
	second := pod{name: "second", networks: []string{"first", "first", "first", "first"}, node: fast}
	refused := false
	// Kubelet chooses four of seven functions at random: one time in 35, none is the owner's.
	for range 10 {
		create(t, second)
		await(t, "the second Pod runs or is refused", func(ctx context.Context) string {
			message, err := second.events(ctx, "DeviceInUse")
			if refused = err == nil && strings.Contains(message, "Pod default/second, but interface") && strings.Contains(message, "of Pod default/owner"); refused {
				return ""
			}
			phase, err := shared.Kubectl(ctx, "get", "pod", second.name, "-o", "jsonpath={.status.phase}")
			if err == nil && (phase == "Running" || phase == "Failed") {
				return ""
			}
			return message + phase + text(err)
		})
		if refused {
			break
		}
		remove(t, second)
	}
	if !refused {
		t.Fatal("the second Pod was never refused")
	}
	if now := owner.exec(t, "ip", "-o", "link"); now != own {
		t.Errorf("the owner's interfaces were\n%s and are\n%s", own, now)
	}
	remove(t, owner)
	awaitRunning(t, second)
}

// After a power cut, functions are as the boot makes them, and Pods get them again.
func TestPowerCut(t *testing.T) {
	before := freeFunctions(t)
	lost := pod{name: "lost", networks: []string{"first", "second"}}
	create(t, lost)
	awaitRunning(t, lost)
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	if err := shared.KillNode(ctx, fast); err != nil {
		t.Fatal(err)
	}
	if err := shared.StartNode(ctx, fast); err != nil {
		t.Fatal(err)
	}
	if err := startDevicePlugin(ctx); err != nil {
		t.Fatal(err)
	}
	remove(t, lost)
	await(t, "the DanmEps of the Pod are gone", func(ctx context.Context) string {
		out, err := shared.Kubectl(ctx, "get", "danmeps", "-o", "name")
		return out + text(err)
	})
	checkRestored(t, before)
	again := pod{name: "again", networks: []string{"first", "second"}}
	create(t, again)
	awaitRunning(t, again)
}
