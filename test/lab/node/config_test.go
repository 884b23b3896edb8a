// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/test/lab/fabric"
	"github.com/patchbay-cni/patchbay/test/lab/guest"
	"github.com/patchbay-cni/patchbay/test/lab/uml"
)

func config() Config {
	return Config{Name: "node-7", Port: 7, Fabric: fabric.Fabric{Netns: "pb-x"}, Dir: "/run/x", Bin: "/opt/bin", Kernel: uml.Kernel{}}
}

// Whatever is mounted from the disk comes after the disk, and each folder that an
// overlay or a bind needs is made on it.
func TestMountsHaveTheirFolders(t *testing.T) {
	t.Parallel()
	mounts := config().mounts()
	at := slices.IndexFunc(mounts, func(m guest.Mount) bool { return m.Target == disk })
	if at < 0 {
		t.Fatal("no disk")
	}
	for i, m := range mounts {
		var needs []string
		switch m.Type {
		case "bind":
			needs = []string{m.Source}
		case "overlay":
			for option := range strings.SplitSeq(m.Data, ",") {
				if key, dir, _ := strings.Cut(option, "="); key != "lowerdir" {
					needs = append(needs, dir)
				}
			}
		}
		for _, dir := range needs {
			folder, ok := strings.CutPrefix(dir, disk+"/")
			if !ok || i < at || !slices.Contains(mounts[at].Folders, folder) {
				t.Errorf("mount on %s needs %s, which is not there by then", m.Target, dir)
			}
		}
	}
}

// containerd and kubelet mount overlays below their folders, which an overlay refuses.
func TestRuntimeIsOnTheDiskItself(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"/var/lib/containerd", "/var/lib/kubelet"} {
		last := ""
		for _, m := range config().mounts() {
			if strings.HasPrefix(dir+"/", m.Target+"/") {
				last = m.Type
			}
		}
		if last != "bind" {
			t.Errorf("%s lies on %q", dir, last)
		}
	}
}

func TestPodNetwork(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal(config().podNetwork())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"cniVersion":"1.0.0","name":"pods","plugins":[{"bridge":"cni0",` +
		`"ipam":{"ranges":[[{"subnet":"10.244.7.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}],"type":"host-local"},` +
		`"isGateway":true,"type":"bridge"}]}`
	if diff := cmp.Diff(want, string(raw)); diff != "" {
		t.Error(diff)
	}
}

func TestNetwork(t *testing.T) {
	t.Parallel()
	got := config().network()
	for _, want := range []string{
		"address add 10.89.0.17/24 dev ens3\n", "address add 192.168.89.17/24 dev ens4\n",
		"address add 192.168.90.17/24 dev ens5\n", "link set ens3 up\n", "route add default via 10.89.0.1\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}
