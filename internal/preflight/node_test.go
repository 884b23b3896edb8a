// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"slices"
	"strings"
	"testing"
)

// goodFacts are those of a node on which everything works.
func goodFacts() *Facts {
	f := &Facts{
		Kernel: "6.1.0-28-amd64", Options: map[string]Availability{}, IPv6: true, MaxNetworkNamespaces: 1000,
		NICs: []NIC{{Name: "ens4", MTU: 9000, State: "up"}},
		CNI: CNIFacts{
			BinDir: "/opt/cni/bin", ConfDir: "/etc/cni/net.d", HasBinDir: true, HasConfDir: true,
			Files: []string{"10-flannel.conflist"}, Chosen: "10-flannel.conflist",
		},
	}
	for _, o := range KernelOptions() {
		f.Options[o.Name] = BuiltIn
	}
	return f
}

// notOK returns the results that are not OK as LEVEL CHECK: MESSAGE.
func notOK(t *testing.T, all []Result) []string {
	t.Helper()
	var texts []string
	for _, r := range all {
		if (r.Remedy == "") != (r.Level == OK) {
			t.Errorf("%s %s: got remedy %q: only an OK result must have none", r.Level, r.Check, r.Remedy)
		}
		if r.Level != OK {
			texts = append(texts, string(r.Level)+" "+r.Check+": "+r.Message)
		}
	}
	return texts
}

func TestCheckFacts(t *testing.T) {
	t.Parallel()
	defaults := Requirements{Features: []Feature{IPVLAN, MACVLAN, VLAN, VXLAN}}
	delegate := Requirements{Features: defaults.Features, DefaultDelegate: "10-calico.conflist"}
	for name, tc := range map[string]struct {
		reason string
		change func(*Facts)
		want   Requirements
		// problems are the beginnings of the results that are not OK.
		problems []string
	}{
		"good": {
			reason: "a node that has everything gets no warning",
			change: func(*Facts) {}, want: defaults,
		},
		"module missing": {
			reason: "a feature that the user named does not work",
			change: func(f *Facts) { f.Options["8021q"] = Missing }, want: defaults,
			problems: []string{"failure module 8021q: missing: feature vlan does not work"},
		},
		"module of another feature missing": {
			reason: "a feature that is not requested needs nothing",
			change: func(f *Facts) { f.Options["8021q"] = Missing; f.Options["NETFILTER_EGRESS"] = Missing },
			want:   Requirements{Features: []Feature{IPVLAN}},
		},
		"source guard": {
			reason: "options without a module are checked, too",
			change: func(f *Facts) { f.Options["NETFILTER_EGRESS"] = Missing }, want: Requirements{Features: []Feature{SourceGuard}},
			problems: []string{"failure kernel option NETFILTER_EGRESS: missing: feature source-guard"},
		},
		"filter missing": {
			reason: "Patchbay works without its filters, but isolates less",
			change: func(f *Facts) { f.Options["cls_bpf"] = Missing; f.Options["nf_tables"] = Missing }, want: defaults,
			problems: []string{"warning module nf_tables: missing: any Pod can send into VXLANs", "warning module cls_bpf: missing: Pods can send VLAN tags"},
		},
		"module not loaded": {
			reason: "a module that is not loaded after a restart breaks what worked before",
			change: func(f *Facts) { f.Options["vxlan"] = Loadable }, want: defaults,
			problems: []string{"warning module vxlan: not loaded"},
		},
		"module cannot be loaded": {
			reason: "after kernel.modules_disabled=1 only a restart loads modules",
			change: func(f *Facts) { f.Options["vxlan"] = Loadable; f.ModulesDisabled = true }, want: defaults,
			problems: []string{"failure module vxlan: not loaded, and the sysctl kernel.modules_disabled is 1"},
		},
		"module unknown": {
			reason: "what could not be found out is not called good",
			change: func(f *Facts) { f.Options["macvlan"] = Unknown }, want: defaults,
			problems: []string{"warning module macvlan: unknown"},
		},
		"objref in a new kernel": {
			reason: "from Linux 6.2 on, nf_tables includes nft_objref",
			change: func(f *Facts) { f.Kernel = "6.2.0"; f.Options["nft_objref"] = Missing }, want: defaults,
		},
		"objref in an old kernel": {
			reason: "before Linux 6.2, nft_objref is a module of its own",
			change: func(f *Facts) { f.Options["nft_objref"] = Missing }, want: defaults,
			problems: []string{"warning module nft_objref: missing"},
		},
		"no namespaces": {
			reason: "hardened nodes may forbid network namespaces",
			change: func(f *Facts) { f.MaxNetworkNamespaces = 0 }, want: defaults,
			problems: []string{"failure sysctls: user.max_net_namespaces is 0"},
		},
		"namespaces unknown": {
			reason: "a sysctl that cannot be read is no failure: only 0 forbids namespaces",
			change: func(f *Facts) { f.MaxNetworkNamespaces = -1 }, want: defaults,
		},
		"no IPv6": {
			reason: "IPv4 works without IPv6",
			change: func(f *Facts) { f.IPv6 = false }, want: defaults,
			problems: []string{"warning sysctls: the kernel has no IPv6"},
		},
		"NIC missing": {
			reason: "a network on a NIC that a node lacks does not work there",
			change: func(*Facts) {}, want: Requirements{NICs: []string{"ens4", "ens5"}},
			problems: []string{"failure NICs: missing ens5; found: ens4 9000 up"},
		},
		"no NICs": {
			reason: "a node in a cloud may have virtual interfaces only, which networks can use as well",
			change: func(f *Facts) { f.NICs = nil }, want: defaults,
			problems: []string{"warning NICs: no network card"},
		},
		"runtime reads another folder": {
			reason: "the runtime would never see Patchbay's configuration",
			change: func(f *Facts) {
				f.CNI.RuntimeFile, f.CNI.RuntimeConfDir = "/etc/containerd/config.toml", "/etc/kubernetes/cni/net.d"
				f.CNI.Chosen, f.CNI.ChosenError = "", "no default network"
			}, want: defaults,
			problems: []string{
				"failure CNI folders: /etc/containerd/config.toml has the folder of configurations /etc/kubernetes/cni/net.d: must be /etc/cni/net.d", "warning CNI configuration",
			},
		},
		"runtime has other plugins": {
			reason: "the runtime would not find the plugin",
			change: func(f *Facts) {
				f.CNI.RuntimeFile, f.CNI.RuntimeBinDirs = "/etc/containerd/config.toml", []string{"/usr/lib/cni"}
				f.CNI.ChosenError = "plugin flannel is not installed"
			}, want: defaults,
			problems: []string{
				"failure CNI folders: /etc/containerd/config.toml has the folder of plugins /usr/lib/cni: must be /opt/cni/bin", "warning CNI configuration: Pods without",
			},
		},
		"runtime has another file": {
			reason: "the folders have a working configuration, so the runtime was probably started with another file",
			change: func(f *Facts) {
				f.CNI.RuntimeFile, f.CNI.RuntimeBinDirs = "/etc/containerd/config.toml", []string{"/usr/lib/cni"}
			}, want: defaults,
			problems: []string{"warning CNI folders: /etc/containerd/config.toml has the folder of plugins"},
		},
		"runtime has the folders": {
			reason: "a slash at the end makes no difference, and CRI-O searches several folders",
			change: func(f *Facts) {
				f.CNI.RuntimeConfDir, f.CNI.RuntimeBinDirs = "/etc/cni/net.d/", []string{"/opt/cni/bin/", "/usr/libexec/cni"}
			}, want: defaults,
		},
		"k3s": {
			reason: "the default folder is empty, and the configuration is where k3s has it",
			change: func(f *Facts) {
				f.CNI.Files, f.CNI.Chosen, f.CNI.ChosenError = nil, "", "no default network"
				f.CNI.HasConfDir = false
				f.CNI.OtherConfDirs = []string{"/var/lib/rancher/k3s/agent/etc/cni/net.d"}
			}, want: defaults,
			problems: []string{"failure CNI folders: /etc/cni/net.d has no CNI configuration, but /var/lib/rancher/k3s", "warning CNI configuration: Pods without annotation would not start: no default network"},
		},
		"no CNI": {
			reason: "a new cluster has no Pod network; Patchbay may come first",
			change: func(f *Facts) {
				f.CNI = CNIFacts{BinDir: "/opt/cni/bin", ConfDir: "/etc/cni/net.d", ChosenError: "no default network"}
			}, want: defaults,
			problems: []string{"warning CNI folders: /etc/cni/net.d and /opt/cni/bin: no such folder", "warning CNI configuration: Pods without"},
		},
		"other plugin first": {
			reason: "the runtime uses the file that sorts first",
			change: func(f *Facts) { f.CNI.Earlier = []EarlierFile{{Name: "00-calico.conflist"}} }, want: defaults,
			problems: []string{"failure CNI configuration: 00-calico.conflist sorts before 00-patchbay.conflist: the runtime would not"},
		},
		"invalid file first": {
			reason: "containerd starts no Pod while the first file is invalid",
			change: func(f *Facts) { f.CNI.Earlier = []EarlierFile{{Name: "00-a.conflist", Error: "unexpected end"}} }, want: defaults,
			problems: []string{"failure CNI configuration: 00-a.conflist sorts before 00-patchbay.conflist and is invalid: unexpected end"},
		},
		"Multus first": {
			reason: "Multus calls the first file beside its own, which it looks for when it starts",
			change: func(f *Facts) { f.CNI.Earlier = []EarlierFile{{Name: "00-multus.conf", CallsPatchbay: true}} }, want: defaults,
			problems: []string{"warning CNI configuration: 00-multus.conf sorts before 00-patchbay.conflist and calls another configuration, as Multus does"},
		},
		"Cilium was exclusive": {
			reason: "Cilium never renames a file back, so the file may be from before its setting was changed",
			change: func(f *Facts) { f.CNI.Suspended = []string{"10-flannel.conflist.cilium_bak"} }, want: defaults,
			problems: []string{"warning CNI configuration: Cilium has renamed 10-flannel.conflist.cilium_bak: with cni.exclusive, "},
		},
		"CRI-O has a default network": {
			reason: "CRI-O ignores all other configurations then",
			change: func(f *Facts) { f.CNI.RuntimeNetwork = "multus-cni-network" }, want: defaults,
			problems: []string{"failure CNI configuration: CRI-O uses the network multus-cni-network only"},
		},
		"daemon's port in use": {
			reason: "the daemon runs on each node, and programs on the host's network cannot share a port",
			change: func(f *Facts) { f.Listening = []int{22, 9640, 9644} }, want: defaults,
			problems: []string{"failure ports: another program listens on TCP port 9640, 9644"},
		},
		"controller's port in use": {
			reason: "the controller runs on two nodes, which can be others",
			change: func(f *Facts) { f.Listening = []int{9645} }, want: defaults,
			problems: []string{"warning ports: another program listens on TCP port 9645, and the controller"},
		},
		"operator's port in use": {
			reason: "the operator runs on one node, and may be installed already",
			change: func(f *Facts) { f.Listening = []int{9647, 9648} }, want: defaults,
			problems: []string{"warning ports: another program listens on TCP port 9647, 9648, and patchbay-operator cannot run here, unless"},
		},
		"no default delegate": {
			reason: "without the file that it shall give to Pods, the daemon is not ready",
			change: func(f *Facts) { f.CNI.Chosen, f.CNI.ChosenError = "", "must have the file" }, want: delegate,
			problems: []string{"failure CNI configuration: the node daemon would not be ready: must have the file"},
		},
		"default delegate without plugin": {
			reason: "the daemon is ready, because the runtime may have more folders of plugins",
			change: func(f *Facts) { f.CNI.ChosenError = "there is no /opt/cni/bin/calico" }, want: delegate,
			problems: []string{"warning CNI configuration: Pods without annotation would not start"},
		},
		"unreadable folder": {
			reason: "a folder that could not be read is neither called missing nor good, and Patchbay may be installed",
			change: func(f *Facts) {
				f.CNI.HasConfDir, f.CNI.UnreadableDirs, f.CNI.Files, f.CNI.Chosen = true, []string{"/etc/cni/net.d"}, nil, ""
				f.CNI.OtherConfDirs = []string{"/var/lib/k0s/cni/net.d"}
				f.Listening, f.Errors = []int{9640}, []string{"open /etc/cni/net.d: permission denied"}
			}, want: defaults,
			problems: []string{"warning ports: another program", "warning node's files: open /etc/cni/net.d: permission denied"},
		},
		"unreadable path": {
			reason: "a folder that could not be found may exist",
			change: func(f *Facts) {
				f.CNI.HasBinDir, f.CNI.UnreadableDirs, f.CNI.ChosenError = false, []string{"/opt/cni/bin"}, "permission denied"
				f.Errors = []string{"stat /opt/cni/bin: permission denied"}
			}, want: defaults,
			problems: []string{"warning CNI configuration: Pods without annotation would not", "warning node's files: stat /opt"},
		},
		"installed": {
			reason: "before an upgrade, Patchbay itself listens on its ports",
			change: func(f *Facts) {
				f.CNI.Files = []string{"00-patchbay.conflist", "10-flannel.conflist"}
				f.Listening = []int{9640, 9641, 9642}
			}, want: defaults,
		},
		"unreadable": {
			reason: "what could not be read is named",
			change: func(f *Facts) { f.Errors = []string{"list network interfaces: permission denied"} }, want: defaults,
			problems: []string{"warning node's files: list network interfaces: permission denied"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := goodFacts()
			tc.change(f)
			got := notOK(t, CheckFacts("node-1", f, tc.want))
			if !slices.EqualFunc(got, tc.problems, strings.HasPrefix) {
				t.Errorf("%s:\n got %q\nwant %q", tc.reason, got, tc.problems)
			}
		})
	}
}

func TestParseVersion(t *testing.T) {
	t.Parallel()
	for text, tc := range map[string]struct {
		reason string
		want   [2]int
		ok     bool
	}{
		"6.1.0-28-amd64": {"Debian's kernel", [2]int{6, 1}, true},
		"v1.35.2+k3s1":   {"a distribution's Kubernetes", [2]int{1, 35}, true},
		"1.7.24~ds1":     {"Debian's containerd", [2]int{1, 7}, true},
		"6.18-rc1":       {"a release candidate", [2]int{6, 18}, true},
		"":               {"a Node that has not reported", [2]int{}, false},
		"v2":             {"no minor", [2]int{}, false},
		"a.b":            {"no numbers", [2]int{}, false},
	} {
		got, ok := parseVersion(text)
		if ok != tc.ok || ok && got != tc.want {
			t.Errorf("%s: parseVersion(%q): got %v, %t, want %v, %t", tc.reason, text, got, ok, tc.want, tc.ok)
		}
	}
}

// A node can make its Pod print anything, and no list of it fills the terminal.
func TestTruncate(t *testing.T) {
	t.Parallel()
	f := goodFacts()
	f.Truncate()
	if len(f.Errors) != 0 || len(f.NICs) != 1 {
		t.Errorf("short lists: got %+v, want no change", f)
	}
	f.CNI.Suspended, f.Errors = make([]string, 1500), make([]string, 1500)
	f.Truncate()
	if len(f.CNI.Suspended) != 1000 || len(f.Errors) != 1002 || !strings.HasPrefix(f.Errors[1000], "the node has 1500 renamed CNI configurations") {
		t.Errorf("long lists: got %d renamed files, %d errors, want 1000 of each, and errors about both", len(f.CNI.Suspended), len(f.Errors))
	}
}
