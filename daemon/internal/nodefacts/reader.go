// SPDX-License-Identifier: Apache-2.0

// Package nodefacts reads on a node what `kubectl patchbay preflight` checks. It reads files only, and changes
// nothing.
package nodefacts

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-cni/patchbay/daemon/internal/backend/delegate"
	"github.com/patchbay-cni/patchbay/internal/preflight"
)

// maxFile bounds what is read of one file.
const maxFile = 16 << 20

// Reader reads the facts of a node.
type Reader struct {
	// HostRoot is the folder at which the node's root file system is mounted, and Host has its files. Links in it
	// must not lead out of it.
	HostRoot string
	Host     fs.FS
	// Proc and Sys have the files of procfs and sysfs, of the node's network namespace.
	Proc, Sys fs.FS
	// BinDir and ConfDir are the folders of CNI plugins and configurations on the node.
	BinDir, ConfDir string
}

// Read reads all facts. What it cannot read it names in the facts' Errors.
func (r *Reader) Read(ctx context.Context) *preflight.Facts {
	f := &preflight.Facts{Options: map[string]preflight.Availability{}, CNI: preflight.CNIFacts{BinDir: r.BinDir, ConfDir: r.ConfDir}}
	note := func(err error) {
		if err != nil {
			f.Errors = append(f.Errors, err.Error())
		}
	}
	release, err := readFile(r.Proc, "sys/kernel/osrelease")
	note(err)
	f.Kernel = strings.TrimSpace(string(release))
	note(r.readOptions(f))
	f.ModulesDisabled = r.sysctl("kernel/modules_disabled") == 1
	f.MaxNetworkNamespaces = r.sysctl("user/max_net_namespaces")
	f.IPv6 = exists(r.Proc, "sys/net/ipv6")
	f.Listening, err = r.listening()
	note(err)
	f.NICs, err = r.nics()
	note(err)
	note(r.readCNI(ctx, &f.CNI))
	return f
}

// sysctl returns the number in a file below /proc/sys, and -1 if it cannot be read.
func (r *Reader) sysctl(name string) int {
	text, err := readFile(r.Proc, "sys/"+name)
	if err != nil {
		return -1
	}
	value, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return -1
	}
	return value
}

// readOptions finds out which kernel options the running kernel has.
func (r *Reader) readOptions(f *preflight.Facts) error {
	config, err := r.kernelConfig(f.Kernel)
	if err != nil {
		return err
	}
	loaded := moduleNames(r.Proc, "modules")
	builtIn := moduleNames(r.Host, path.Join("lib/modules", f.Kernel, "modules.builtin"))
	loadable := moduleNames(r.Host, path.Join("lib/modules", f.Kernel, "modules.dep"))
	for _, o := range preflight.KernelOptions() {
		value, configured := config[o.Config]
		switch {
		case o.Module != "" && (loaded[o.Module] || builtIn[o.Module]), value == "y":
			f.Options[o.Name] = preflight.BuiltIn
		case o.Module != "" && loadable[o.Module]:
			f.Options[o.Name] = preflight.Loadable
		// A module that the configuration names may be in a package that the node does not have.
		case loadable != nil && builtIn != nil && o.Module != "", config != nil && !configured, value == "n":
			f.Options[o.Name] = preflight.Missing
		case value == "m":
			f.Options[o.Name] = preflight.Loadable
		default:
			f.Options[o.Name] = preflight.Unknown
		}
	}
	return nil
}

// kernelConfig returns the options in the running kernel's configuration, or nil if the node has no file with it.
func (r *Reader) kernelConfig(release string) (map[string]string, error) {
	data, err := readFile(r.Proc, "config.gz")
	if err == nil {
		if data, err = unzip(data); err != nil {
			return nil, fmt.Errorf("read /proc/config.gz: %w", err)
		}
		return parseConfig(data), nil
	}
	for _, name := range []string{"boot/config-" + release, "lib/modules/" + release + "/config", "usr/lib/ostree-boot/config-" + release} {
		if data, err := readFile(r.Host, name); err == nil {
			return parseConfig(data), nil
		}
	}
	return nil, nil
}

func unzip(data []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(z, maxFile))
}

// parseConfig reads lines as `CONFIG_VXLAN=m`.
func parseConfig(data []byte) map[string]string {
	options := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && strings.HasPrefix(name, "CONFIG_") {
			options[name] = value
		}
	}
	return options
}

// moduleNames returns the names of modules that a file lists, as modules.builtin, modules.dep and /proc/modules do.
// It returns nil if the file cannot be read.
func moduleNames(files fs.FS, name string) map[string]bool {
	data, err := readFile(files, name)
	if err != nil {
		return nil
	}
	names := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		first, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		file := path.Base(strings.TrimSuffix(first, ":"))
		file, _, _ = strings.Cut(file, ".ko")
		names[strings.ReplaceAll(file, "-", "_")] = true
	}
	return names
}

// listening returns the TCP ports on which the node's programs listen.
func (r *Reader) listening() ([]int, error) {
	var listed []int
	for _, name := range []string{"net/tcp", "net/tcp6"} {
		data, err := readFile(r.Proc, name)
		if errors.Is(err, fs.ErrNotExist) && name == "net/tcp6" {
			continue
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(data)) {
			const listen = "0A" // TCP_LISTEN, in column st
			fields := strings.Fields(line)
			if len(fields) < 4 || fields[3] != listen {
				continue
			}
			_, digits, _ := strings.Cut(fields[1], ":")
			if port, err := strconv.ParseUint(digits, 16, 16); err == nil {
				listed = append(listed, int(port))
			}
		}
	}
	slices.Sort(listed)
	return slices.Compact(listed), nil
}

// nics returns the network cards, bonds, bridges and VLANs: what a network can name as its host_device. The
// interfaces of Pods, tunnels and other CNI plugins would make the list long.
func (r *Reader) nics() ([]preflight.NIC, error) {
	entries, err := fs.ReadDir(r.Sys, "class/net")
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	var found []preflight.NIC
	for _, e := range entries {
		folder := path.Join("class/net", e.Name())
		if !r.canHaveNetworks(folder) {
			continue
		}
		nic := preflight.NIC{Name: e.Name(), State: r.attribute(folder, "operstate")}
		if nic.MTU, err = strconv.Atoi(r.attribute(folder, "mtu")); err != nil {
			return nil, fmt.Errorf("read MTU of %s: %w", nic.Name, err)
		}
		found = append(found, nic)
	}
	return found, nil
}

// canHaveNetworks reports whether an interface is a network card, a bond, a bridge or a VLAN.
func (r *Reader) canHaveNetworks(folder string) bool {
	if exists(r.Sys, folder+"/device") || exists(r.Sys, folder+"/bonding") {
		return true
	}
	kind := r.attribute(folder, "uevent")
	return strings.Contains(kind, "DEVTYPE=vlan") || strings.Contains(kind, "DEVTYPE=bridge")
}

func (r *Reader) attribute(folder, name string) string {
	text, err := readFile(r.Sys, path.Join(folder, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// otherConfDirs are folders of CNI configurations of distributions of Kubernetes.
func otherConfDirs() []string {
	return []string{
		"/etc/cni/net.d", "/var/lib/rancher/k3s/agent/etc/cni/net.d", "/var/lib/k0s/cni/net.d",
		"/var/snap/microk8s/current/args/cni-network", "/etc/kubernetes/cni/net.d", "/run/multus/cni/net.d",
	}
}

// runtimeFiles are configurations of container runtimes, that of a distribution first.
func runtimeFiles() []string {
	return []string{
		"/var/lib/rancher/k3s/agent/etc/containerd/config.toml", "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
		"/etc/containerd/config.toml", "/etc/crio/crio.conf",
	}
}

func (r *Reader) readCNI(ctx context.Context, c *preflight.CNIFacts) error {
	c.HasBinDir, c.HasConfDir = exists(r.Host, local(r.BinDir)), exists(r.Host, local(r.ConfDir))
	var err error
	if c.Files, c.Suspended, err = r.configurations(r.ConfDir); err != nil {
		return err
	}
	for _, dir := range otherConfDirs() {
		if files, _, err := r.configurations(dir); err == nil && len(files) > 0 && dir != path.Clean(r.ConfDir) {
			c.OtherConfDirs = append(c.OtherConfDirs, dir)
		}
	}
	r.readRuntime(c)
	confDir := filepath.Join(r.HostRoot, r.ConfDir)
	checker := delegate.Checker{
		HostRoot: r.HostRoot, BinDir: filepath.Join(r.HostRoot, r.BinDir), ConfDir: confDir,
		Node: delegate.NodeConfigurations{Dir: confDir, Own: preflight.OwnConfiguration},
	}
	if c.Chosen, _, err = checker.NodeConfiguration(ctx); err != nil {
		c.ChosenError = r.onNode(err.Error())
	}
	earlier, err := checker.EarlierConfigurations()
	for _, e := range earlier {
		file := preflight.EarlierFile{Name: e.File, CallsPatchbay: e.CallsPatchbay}
		if e.Err != nil {
			file.Error = r.onNode(e.Err.Error())
		}
		c.Earlier = append(c.Earlier, file)
	}
	return err
}

// configurations returns the names of the files that a runtime reads in a folder, in its order, and of those that
// Cilium has renamed. A folder that does not exist has none.
func (r *Reader) configurations(dir string) (files, suspended []string, err error) {
	entries, err := fs.ReadDir(r.Host, local(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("list the CNI configurations in %s: %w", dir, err)
	}
	for _, e := range entries {
		switch path.Ext(e.Name()) {
		case ".conf", ".conflist", ".json":
			if !e.IsDir() {
				files = append(files, e.Name())
			}
		case ".cilium_bak":
			suspended = append(suspended, e.Name())
		}
	}
	return files, suspended, nil
}

// runtimeSetting matches the settings of containerd and CRI-O about CNI. No other setting of theirs has these names.
var runtimeSetting = regexp.MustCompile(`^\s*(conf_dir|network_dir|bin_dirs?|plugin_dirs?|cni_default_network)\s*=(.*)$`)

// quoted matches a string in such a setting.
var quoted = regexp.MustCompile(`["']([^"']*)["']`)

// readRuntime reads the first file of a runtime that the node has. Of CRI-O, which is configured by drop-ins, it also
// reads these.
func (r *Reader) readRuntime(c *preflight.CNIFacts) {
	for _, name := range runtimeFiles() {
		if data, err := readFile(r.Host, local(name)); err == nil {
			c.RuntimeFile = name
			parseRuntime(c, data)
			break
		}
	}
	dropIns, err := fs.Glob(r.Host, "etc/crio/crio.conf.d/*")
	if err != nil || len(dropIns) == 0 || strings.HasSuffix(c.RuntimeFile, "/config.toml") {
		return
	}
	for _, name := range dropIns { // the last one has precedence
		if data, err := readFile(r.Host, name); err == nil {
			c.RuntimeFile = "/" + name
			parseRuntime(c, data)
		}
	}
}

// parseRuntime reads the settings line by line. A list may have several lines.
func parseRuntime(c *preflight.CNIFacts, data []byte) {
	inDirs := false
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), "#")
		values := line
		setting := runtimeSetting.FindStringSubmatch(line)
		if setting != nil {
			values = setting[2]
			inDirs = strings.HasPrefix(setting[1], "bin_dir") || strings.HasPrefix(setting[1], "plugin_dir")
			if inDirs {
				c.RuntimeBinDirs = nil
			}
		}
		for _, value := range quoted.FindAllStringSubmatch(values, -1) {
			switch {
			case value[1] == "":
			case inDirs:
				c.RuntimeBinDirs = append(c.RuntimeBinDirs, value[1])
			case setting == nil:
			case setting[1] == "cni_default_network":
				c.RuntimeNetwork = value[1]
			default:
				c.RuntimeConfDir = value[1]
			}
		}
		if inDirs && (strings.Contains(values, "]") || !strings.Contains(values, "[") && setting != nil) {
			inDirs = false
		}
	}
}

// onNode returns a text with paths as on the node.
func (r *Reader) onNode(text string) string {
	root := strings.TrimSuffix(r.HostRoot, "/")
	if root == "" {
		return text
	}
	return strings.ReplaceAll(text, root+"/", "/")
}

// local returns the path in an fs.FS of the root.
func local(dir string) string { return strings.TrimPrefix(path.Clean(dir), "/") }

func exists(files fs.FS, name string) bool {
	_, err := fs.Stat(files, name)
	return err == nil
}

// readFile reads a regular file, or one of procfs or sysfs.
func readFile(files fs.FS, name string) (data []byte, err error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: must be a regular file", name)
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}
