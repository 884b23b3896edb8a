// SPDX-License-Identifier: Apache-2.0

package delegate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/daemon/internal/backend/delegate"
)

const podArgs = "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=sandbox;K8S_POD_UID=uid"

// printed is a result in a version of CNI, as a plugin prints it.
func printed(version string) string {
	ip := `{"interface":1,"address":"10.1.0.5/24"}`
	if strings.HasPrefix(version, "0.") {
		ip = `{"version":"4","interface":1,"address":"10.1.0.5/24"}`
	}
	return fmt.Sprintf(`{"cniVersion":%q,"interfaces":[{"name":"veth1"},{"name":"eth0","mac":"02:00:00:00:00:01","mtu":1400,"sandbox":"/run/netns/a"}],"ips":[%s]}`,
		version, ip)
}

func TestAttachAndDetach(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		// prev is whether DEL gets a prevResult, which it does from CNI 0.4.0 on.
		prev bool
		mtu  int
	}{
		"0.3.1": {false, 0}, "0.4.0": {true, 0}, "1.0.0": {true, 1400}, "1.1.0": {true, 1400},
	}
	for version, tc := range cases {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, delegate.Options{})
			b.config("flat.conflist", fmt.Sprintf(`{"cniVersion":%q,"name":"flat","plugins":[{"type":"bridge"},{"type":"portmap"}]}`, version))
			add := "[ $CNI_COMMAND = DEL ] || echo '" + printed(version) + "'"
			b.plugin("bridge", add)
			b.plugin("portmap", add)
			rec, ifc := b.attached()
			if ifc.MAC != "02:00:00:00:00:01" || ifc.MTU != tc.mtu {
				t.Errorf("MAC %q and MTU %d, want the plugin's", ifc.MAC, ifc.MTU)
			}
			var result struct{ CNIVersion string }
			if err := json.Unmarshal(ifc.Result, &result); err != nil || result.CNIVersion != "1.0.0" {
				t.Errorf("journalled result %s: %v, want one of 1.0.0", ifc.Result, err)
			}
			b.config("flat.conflist", "changed since")
			rec.Netns = ""
			if err := b.backend.Detach(context.Background(), rec, ifc); err != nil {
				t.Fatal(err)
			}
			want := []string{
				"ADD bridge sandbox eth0 netns=/run/netns/a " + podArgs, "ADD portmap sandbox eth0 netns=/run/netns/a " + podArgs,
				"DEL portmap sandbox eth0 netns= " + podArgs, "DEL bridge sandbox eth0 netns= " + podArgs,
			}
			if diff := cmp.Diff(want, b.runs()); diff != "" {
				t.Errorf("runs: -want +got:\n%s", diff)
			}
			var prev []bool
			for _, in := range b.inputs() {
				if in["name"] != "flat" || in["cniVersion"] != version {
					t.Errorf("name and version are the list's: %v", in)
				}
				result, has := in["prevResult"].(map[string]any)
				if has && result["cniVersion"] != version {
					t.Errorf("prevResult of version %v in a list of %s", result["cniVersion"], version)
				}
				prev = append(prev, has)
			}
			if diff := cmp.Diff([]bool{false, true, tc.prev, tc.prev}, prev); diff != "" {
				t.Errorf("prevResult given: -want +got:\n%s", diff)
			}
		})
	}
}

// A daemon that was killed during ADD has journalled the configuration without a result.
func TestDetachWithoutResult(t *testing.T) {
	t.Parallel()
	b := newBench(t, delegate.Options{})
	b.config("flat.conf", single)
	b.plugin("bridge", "")
	rec, ifc := b.sandbox("bridge")
	if err := b.prepare(ifc); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := b.backend.Detach(context.Background(), rec, ifc); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(b.runs()); n != 2 {
		t.Errorf("%d runs, want 2", n)
	}
}

// Plugins get nothing of the daemon's environment.
func TestEnvironment(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
	b := newBench(t, delegate.Options{})
	b.config("flat.conf", single)
	b.plugin("bridge", "echo '"+printed("1.0.0")+"'")
	b.attached()
	var keys []string
	for line := range strings.Lines(b.recorded("env")[0]) {
		key, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		if !slices.Contains([]string{"PWD", "OLDPWD", "_", "SHLVL"}, key) { // the shell's own
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	want := []string{"CNI_ARGS", "CNI_COMMAND", "CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS", "CNI_PATH", "PATH"}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
