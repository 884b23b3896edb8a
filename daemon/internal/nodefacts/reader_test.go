// SPDX-License-Identifier: Apache-2.0

package nodefacts

import (
	"bytes"
	"compress/gzip"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/patchbay-cni/patchbay/internal/preflight"
)

// proc are the files of procfs that every node has.
func proc() fstest.MapFS {
	return fstest.MapFS{
		"sys/kernel/osrelease":        {Data: []byte("6.1.0\n")},
		"sys/user/max_net_namespaces": {Data: []byte("1000\n")},
		"net/tcp": {Data: []byte("  sl  local_address rem_address   st\n" +
			"   0: 050200C0:25A8 00000000:0000 0A 00000000:00000000\n" + // 9640, listening on 192.0.2.5
			"   0: 0100007F:25AC 00000000:0000 0A 00000000:00000000\n" + // 9644, listening on 127.0.0.1
			"   1: 0100007F:25A9 0100007F:0050 01 00000000:00000000\n")}, // 9641, connected
		"net/tcp6": {Data: []byte("  sl  local_address rem_address   st\n" +
			"   0: 00000000000000000000000000000000:25AA 00000000000000000000000000000000:0000 0A\n" +
			"   0: 00000000000000000000000001000000:25AC 00000000000000000000000000000000:0000 0A\n" +
			"   0: 0000000000000000FFFF00000100007F:25AC 00000000000000000000000000000000:0000 0A\n" +
			"   1: 00000000000000000000000000000000:25A8 00000000000000000000000000000000:0000 0A\n")},
	}
}

func sys() fstest.MapFS {
	return fstest.MapFS{
		"class/net/ens4/mtu": {Data: []byte("9000\n")}, "class/net/ens4/operstate": {Data: []byte("up\n")}, "class/net/ens4/device/vendor": {},
		"class/net/bond0/mtu": {Data: []byte("1500\n")}, "class/net/bond0/operstate": {Data: []byte("down\n")}, "class/net/bond0/bonding/mode": {},
		"class/net/ens4.7/mtu": {Data: []byte("9000\n")}, "class/net/ens4.7/uevent": {Data: []byte("DEVTYPE=vlan\n")},
		"class/net/gone/device/vendor": {}, "class/net/odd/device/vendor": {}, "class/net/odd/mtu": {Data: []byte("none\n")},
		"class/net/veth1/mtu": {Data: []byte("1500\n")}, "class/net/veth1/uevent": {Data: []byte("INTERFACE=veth1\n")},
	}
}

// newReader returns a reader of a node with the files.
func newReader(t *testing.T, proc, sys fstest.MapFS, files map[string]string) *Reader {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil { // plugins are executable
			t.Fatal(err)
		}
	}
	return &Reader{HostRoot: dir, Host: HostFiles{Root: dir}, Proc: proc, Sys: sys, BinDir: "/opt/cni/bin", ConfDir: "/etc/cni/net.d"}
}

func TestRead(t *testing.T) {
	t.Parallel()
	r := newReader(t, proc(), sys(), map[string]string{
		"opt/cni/bin/bridge":                             "",
		"etc/cni/net.d/20-late.conf":                     `{}`,
		"etc/cni/net.d/10-bridge.conflist":               `{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge"}]}`,
		"etc/cni/net.d/00-multus.conf":                   `{"cniVersion": "1.0.0", "name": "multus", "type": "multus-shim"}`,
		"etc/cni/net.d/05-other.conflist.cilium_bak":     `{}`,
		"etc/cni/net.d/README":                           ``,
		"var/lib/k0s/cni/net.d/10-kuberouter.conflist":   `{}`,
		"etc/containerd/config.toml":                     "[plugins.cri.cni]\n  bin_dir = \"/opt/cni/bin\"\n  conf_dir = '/etc/cni/net.d'\n  conf_template = \"\"\n",
		"lib/modules/6.1.0/modules.builtin":              "kernel/net/8021q/8021q.ko\n",
		"lib/modules/6.1.0/modules.dep":                  "kernel/drivers/net/vxlan/vxlan.ko.xz: kernel/net/ipv4/udp_tunnel.ko.xz\n",
		"var/lib/rancher/k3s/agent/etc/cni/net.d/README": "",
	})
	got := r.Read(t.Context())
	if len(got.Errors) != 1 || !strings.HasPrefix(got.Errors[0], "read MTU of odd: ") {
		t.Errorf("got errors %q, want one: an interface that was removed meanwhile is none", got.Errors)
	}
	if got.Kernel != "6.1.0" || got.MaxNetworkNamespaces != 1000 || got.IPv6 || got.ModulesDisabled {
		t.Errorf("kernel and sysctls: got %+v, want those of the files", got)
	}
	if want := []int{9640, 9642}; !slices.Equal(got.Listening, want) {
		t.Errorf("got ports %v, want %v: only those that listen beyond a loopback address, over IPv4 or IPv6", got.Listening, want)
	}
	wantNICs := []preflight.NIC{{Name: "bond0", MTU: 1500, State: "down"}, {Name: "ens4", MTU: 9000, State: "up"}, {Name: "ens4.7", MTU: 9000}}
	if !slices.Equal(got.NICs, wantNICs) {
		t.Errorf("got NICs %v, want %v: the interface of a Pod is none", got.NICs, wantNICs)
	}
	wantCNI := preflight.CNIFacts{
		BinDir: "/opt/cni/bin", ConfDir: "/etc/cni/net.d", HasBinDir: true, HasConfDir: true,
		Files:   []string{"00-multus.conf", "10-bridge.conflist", "20-late.conf"},
		Earlier: []preflight.EarlierFile{{Name: "00-multus.conf", CallsPatchbay: true}}, Suspended: []string{"05-other.conflist.cilium_bak"}, Chosen: "10-bridge.conflist",
		RuntimeFile: "/etc/containerd/config.toml", RuntimeBinDirs: []string{"/opt/cni/bin"}, RuntimeConfDir: "/etc/cni/net.d",
		OtherConfDirs: []string{"/var/lib/k0s/cni/net.d"},
	}
	if !reflect.DeepEqual(got.CNI, wantCNI) {
		t.Errorf("CNI:\n got %+v\nwant %+v", got.CNI, wantCNI)
	}
}

func TestReadRuntime(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, runtime string
		files           map[string]string
		want            preflight.CNIFacts
	}{
		"containerd 2": {
			reason: "version 3 of containerd's configuration has a list of folders",
			files:  map[string]string{"etc/containerd/config.toml": "[plugins.'io.containerd.cri.v1.runtime'.cni]\n  bin_dirs = ['/opt/cni/bin', '/usr/lib/cni']\n  conf_dir = '/etc/cni/net.d'\n  ip_pref = ''\n  x = 'y'\n"},
			want:   preflight.CNIFacts{RuntimeFile: "/etc/containerd/config.toml", RuntimeBinDirs: []string{"/opt/cni/bin", "/usr/lib/cni"}, RuntimeConfDir: "/etc/cni/net.d"},
		},
		"default": {
			reason: "a file without the settings, and comments, change no default",
			files:  map[string]string{"etc/containerd/config.toml": "version = 2\n# conf_dir = \"/tmp\"\n"},
			want:   preflight.CNIFacts{RuntimeFile: "/etc/containerd/config.toml"},
		},
		"OpenShift": {
			reason: "the drop-ins of CRI-O have precedence in their order, and a list has several lines",
			files: map[string]string{
				"etc/crio/crio.conf":               "[crio.network]\nnetwork_dir = \"/etc/cni/net.d/\"\nplugin_dirs = [\"/opt/cni/bin\"]\n",
				"etc/crio/crio.conf.d/00-default":  "[crio.network]\nnetwork_dir = \"/etc/kubernetes/cni/net.d/\"\nplugin_dirs = [\n  \"/var/lib/cni/bin\",\n  \"/usr/libexec/cni\",\n]\n[crio.metrics]\nhost = \"::\"\n",
				"etc/crio/crio.conf.d/20-override": "cni_default_network = \"multus-cni-network\"\n",
			},
			want: preflight.CNIFacts{
				RuntimeFile: "/etc/crio/crio.conf.d/20-override", RuntimeBinDirs: []string{"/var/lib/cni/bin", "/usr/libexec/cni"},
				RuntimeConfDir: "/etc/kubernetes/cni/net.d/", RuntimeNetwork: "multus-cni-network",
			},
		},
		"k3s": {
			reason: "k3s runs containerd with a file of its own, also on a node with the distribution's package",
			files: map[string]string{
				"etc/containerd/config.toml":                             "conf_dir = '/etc/cni/net.d'\n",
				"var/lib/rancher/k3s/agent/etc/containerd/config.toml":   "conf_dir = '/var/lib/rancher/k3s/agent/etc/cni/net.d'\n",
				"etc/crio/crio.conf.d/10-unused-because-containerd-runs": "network_dir = '/tmp'\n",
			},
			want: preflight.CNIFacts{RuntimeFile: "/var/lib/rancher/k3s/agent/etc/containerd/config.toml", RuntimeConfDir: "/var/lib/rancher/k3s/agent/etc/cni/net.d"},
		},
		"runtime without files of others": {
			reason: "a node that ran k3s before may still have its file", runtime: "containerd://1.7.2",
			files: map[string]string{
				"etc/containerd/config.toml":                           "conf_dir = '/etc/cni/net.d'\n",
				"var/lib/rancher/k3s/agent/etc/containerd/config.toml": "conf_dir = '/var/lib/rancher/k3s/agent/etc/cni/net.d'\n",
			},
			want: preflight.CNIFacts{RuntimeFile: "/etc/containerd/config.toml", RuntimeConfDir: "/etc/cni/net.d"},
		},
		"k3s' runtime": {
			reason: "k3s names itself in the version of its containerd", runtime: "containerd://2.0.5-k3s1",
			files: map[string]string{
				"etc/containerd/config.toml":                            "conf_dir = '/etc/cni/net.d'\n",
				"var/lib/rancher/rke2/agent/etc/containerd/config.toml": "conf_dir = '/tmp'\n",
			},
			want: preflight.CNIFacts{RuntimeFile: "/var/lib/rancher/rke2/agent/etc/containerd/config.toml", RuntimeConfDir: "/tmp"},
		},
		"CRI-O with containerd's package": {
			reason: "Docker's package brings a file of containerd", runtime: "cri-o://1.33.0",
			files: map[string]string{
				"etc/containerd/config.toml":  "conf_dir = '/tmp'\n",
				"etc/crio/crio.conf.d/10-cni": "network_dir = '/etc/cni/net.d'\n",
			},
			want: preflight.CNIFacts{RuntimeFile: "/etc/crio/crio.conf.d/10-cni", RuntimeConfDir: "/etc/cni/net.d"},
		},
		"other runtime": {
			reason: "files of runtimes that the node does not use have no effect", runtime: "docker://27.0.0",
			files: map[string]string{"etc/containerd/config.toml": "conf_dir = '/tmp'\n", "etc/crio/crio.conf.d/10-cni": "network_dir = '/tmp'\n"},
		},
		"none": {reason: "the configuration may be elsewhere"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got preflight.CNIFacts
			r := newReader(t, proc(), sys(), tc.files)
			r.Runtime = tc.runtime
			if err := r.readRuntime(&got); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("%s:\n got %+v\nwant %+v", tc.reason, got, tc.want)
			}
		})
	}
}

func TestReadOptions(t *testing.T) {
	t.Parallel()
	const builtIn, dep = "lib/modules/6.1.0/modules.builtin", "lib/modules/6.1.0/modules.dep"
	for name, tc := range map[string]struct {
		reason string
		files  map[string]string
		proc   map[string]string
		want   map[string]preflight.Availability
	}{
		"lists of modules": {
			reason: "the lists name modules of all kinds, compressed or not",
			files:  map[string]string{builtIn: "kernel/net/8021q/8021q.ko\n", dep: "kernel/net/sched/cls_bpf.ko.zst:\nkernel/drivers/net/vxlan/vxlan.ko:\n"},
			proc:   map[string]string{"modules": "vxlan 155648 0 - Live 0x0000000000000000\n"},
			want: map[string]preflight.Availability{
				"8021q": preflight.BuiltIn, "vxlan": preflight.BuiltIn, "cls_bpf": preflight.Loadable, "ipvlan": preflight.Missing, "NF_TABLES_INET": preflight.Unknown,
			},
		},
		"configuration": {
			reason: "the configuration has options that are no modules",
			files:  map[string]string{"boot/config-6.1.0": "CONFIG_VXLAN=m\nCONFIG_VLAN_8021Q=y\nCONFIG_NF_TABLES_INET=y\n# CONFIG_IPVLAN is not set\n"},
			want: map[string]preflight.Availability{
				"vxlan": preflight.Loadable, "8021q": preflight.BuiltIn, "NF_TABLES_INET": preflight.BuiltIn, "ipvlan": preflight.Missing, "NETFILTER_EGRESS": preflight.Missing,
			},
		},
		"module in a package": {
			reason: "the kernel was built with the module, but the node does not have its file",
			files:  map[string]string{"boot/config-6.1.0": "CONFIG_VXLAN=m\n", builtIn: "", dep: ""},
			want:   map[string]preflight.Availability{"vxlan": preflight.Missing},
		},
		"nothing": {
			reason: "a node may have no file that tells",
			proc:   map[string]string{"modules": "macvlan 1 0 - Live 0x0\n"},
			want:   map[string]preflight.Availability{"vxlan": preflight.Unknown, "macvlan": preflight.BuiltIn},
		},
		"configuration in the kernel": {
			reason: "kernels with CONFIG_IKCONFIG_PROC have their configuration with them",
			proc:   map[string]string{"config.gz": zipped(t, "CONFIG_IPVLAN=y\n")},
			files:  map[string]string{"boot/config-6.1.0": "CONFIG_VXLAN=y\n"},
			want:   map[string]preflight.Availability{"ipvlan": preflight.BuiltIn, "vxlan": preflight.Missing},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := proc()
			for name, text := range tc.proc {
				files[name] = &fstest.MapFile{Data: []byte(text)}
			}
			got := newReader(t, files, sys(), tc.files).Read(t.Context()).Options
			for option, want := range tc.want {
				if got[option] != want {
					t.Errorf("%s: %s: got %s, want %s", tc.reason, option, got[option], want)
				}
			}
		})
	}
}

func zipped(t *testing.T, text string) string {
	t.Helper()
	var buffer bytes.Buffer
	w := gzip.NewWriter(&buffer)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buffer.String()
}

// A node on which nothing is as expected gets facts nonetheless, which name what is wrong.
func TestReadOfNothing(t *testing.T) {
	t.Parallel()
	files := proc()
	files["config.gz"] = &fstest.MapFile{Data: []byte("no archive")}
	delete(files, "net/tcp")
	got := newReader(t, files, fstest.MapFS{}, nil).Read(t.Context())
	for i, want := range []string{"read /proc/config.gz", "net/tcp", "list network interfaces"} {
		if i >= len(got.Errors) || !strings.Contains(got.Errors[i], want) {
			t.Errorf("got errors %q, want one with %q in place %d", got.Errors, want, i)
		}
	}
	if got.CNI.HasBinDir || got.CNI.Chosen != "" || !strings.Contains(got.CNI.ChosenError, "folder /etc/cni/net.d must have a CNI configuration") {
		t.Errorf("CNI: got %+v, want an error with the folder as on the node", got.CNI)
	}
}

// The plugin of the chosen configuration is looked for on the node, also through a link.
func TestReadOfMissingPlugin(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, target, want string
	}{
		"absolute link": {"an absolute link leads to a file of the node, not of the Pod", "/opt/plugins/bridge", ""},
		"dead link":     {"a link to nothing is no plugin", "/opt/nothing", "there is no /opt/cni/bin/bridge"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReader(t, proc(), sys(), map[string]string{
				"opt/plugins/bridge": "", "opt/cni/bin/README": "",
				"etc/cni/net.d/10-bridge.conflist": `{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge"}]}`,
			})
			if err := os.Symlink(tc.target, filepath.Join(r.HostRoot, "opt/cni/bin/bridge")); err != nil {
				t.Fatal(err)
			}
			got := r.Read(t.Context()).CNI
			if got.Chosen != "10-bridge.conflist" || !strings.Contains(got.ChosenError, tc.want) || (tc.want == "") != (got.ChosenError == "") {
				t.Errorf("%s: got %q, %q, want an error with %q", tc.reason, got.Chosen, got.ChosenError, tc.want)
			}
		})
	}
}

// Folders of the node may be links: absolute ones lead to folders of the node, not of the Pod.
func TestReadOfLinkedFolders(t *testing.T) {
	t.Parallel()
	r := newReader(t, proc(), sys(), map[string]string{
		"data/bin/bridge": "", "opt/README": "",
		"data/net.d/00-broken.conflist": `{`, "etc/cni/README": "",
	})
	for link, target := range map[string]string{"opt/cni": "/data", "etc/cni/net.d": "/data/net.d"} {
		if err := os.Symlink(target, filepath.Join(r.HostRoot, link)); err != nil {
			t.Fatal(err)
		}
	}
	f := r.Read(t.Context())
	if got := f.CNI; len(got.Earlier) != 1 || !got.HasBinDir || !got.HasConfDir || !strings.Contains(got.ChosenError, "/etc/cni/net.d/00-broken.conflist") {
		t.Errorf("got %+v, want the file behind the link, with its path on the node", got)
	}
	if len(f.CNI.UnreadableDirs) > 0 {
		t.Errorf("got unreadable folders %q, want none", f.CNI.UnreadableDirs)
	}
	if err := os.Rename(filepath.Join(r.HostRoot, "data/net.d/00-broken.conflist"), filepath.Join(r.HostRoot, "data/net.d/README")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.HostRoot, "data/net.d/10-bridge.conflist"), []byte(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := r.Read(t.Context()).CNI; got.Chosen != "10-bridge.conflist" || got.ChosenError != "" {
		t.Errorf("got %q, %q, want the configuration, whose plugin is behind the other link", got.Chosen, got.ChosenError)
	}
}

// The preflight finds the file that the daemon would give to Pods, or why there is none.
func TestReadDefaultDelegate(t *testing.T) {
	t.Parallel()
	for named, tc := range map[string]struct{ reason, chosen, err string }{
		"":                  {"the first file", "05-first.conflist", ""},
		"10-named.conflist": {"another file sorts before it", "10-named.conflist", ""},
		"20-none.conflist":  {"the node does not have it", "", "folder /etc/cni/net.d of this node must have the file"},
	} {
		r := newReader(t, proc(), sys(), map[string]string{
			"opt/cni/bin/bridge":               "",
			"etc/cni/net.d/05-first.conflist":  `{"cniVersion": "1.0.0", "name": "first", "plugins": [{"type": "bridge"}]}`,
			"etc/cni/net.d/10-named.conflist":  `{"cniVersion": "1.0.0", "name": "named", "plugins": [{"type": "bridge"}]}`,
			"etc/cni/net.d/00-other.not-a-cni": "",
		})
		r.DefaultDelegate = named
		got := r.Read(t.Context()).CNI
		if got.Chosen != tc.chosen || !strings.Contains(got.ChosenError, tc.err) || (tc.err == "") != (got.ChosenError == "") {
			t.Errorf("with %q: %s: got %q and error %q, want %q and an error with %q", named, tc.reason, got.Chosen, got.ChosenError, tc.chosen, tc.err)
		}
	}
}

// deniedFiles are files of which some may not be read, as with SELinux.
type deniedFiles struct {
	HostFiles

	denied []string
}

func (d deniedFiles) check(name string) error {
	if slices.Contains(d.denied, name) {
		return &fs.PathError{Op: "open", Path: "/" + name, Err: fs.ErrPermission}
	}
	return nil
}

func (d deniedFiles) Open(name string) (fs.File, error) {
	if err := d.check(name); err != nil {
		return nil, err
	}
	return d.HostFiles.Open(name)
}

func (d deniedFiles) Stat(name string) (fs.FileInfo, error) {
	if err := d.check(name); err != nil {
		return nil, err
	}
	return d.HostFiles.Stat(name)
}

// What may not be read is an error, and is not called missing. All else is read.
func TestReadOfDeniedFiles(t *testing.T) {
	t.Parallel()
	r := newReader(t, proc(), sys(), map[string]string{
		"opt/cni/bin/bridge": "", "etc/cni/net.d/10-bridge.conflist": `{}`, "var/lib/k0s/cni/net.d/10-kuberouter.conflist": `{}`,
		"etc/crio/crio.conf.d/10-cni": "network_dir = '/etc/cni/net.d'\n",
	})
	r.Host = deniedFiles{HostFiles{Root: r.HostRoot}, []string{"opt/cni/bin", "etc/cni/net.d", "etc/containerd/config.toml", "lib/modules/6.1.0/modules.dep"}}
	f := r.Read(t.Context())
	all := strings.Join(f.Errors, "\n")
	for _, name := range []string{"/opt/cni/bin", "/etc/cni/net.d", "/etc/containerd/config.toml", "/lib/modules/6.1.0/modules.dep"} {
		if !strings.Contains(all, name+": permission denied") {
			t.Errorf("got errors %q, want one about %s", f.Errors, name)
		}
	}
	if want := []string{"/opt/cni/bin", "/etc/cni/net.d"}; !slices.Equal(f.CNI.UnreadableDirs, want) {
		t.Errorf("got unreadable folders %q, want %q", f.CNI.UnreadableDirs, want)
	}
	if f.CNI.Chosen != "" || f.CNI.ChosenError != "" || f.Options["vxlan"] != preflight.Unknown {
		t.Errorf("got %+v, want nothing about files that may not be read", f)
	}
	if !slices.Equal(f.CNI.OtherConfDirs, []string{"/var/lib/k0s/cni/net.d"}) || f.CNI.RuntimeConfDir != "/etc/cni/net.d" {
		t.Errorf("got %+v, want all that can be read", f.CNI)
	}
}
