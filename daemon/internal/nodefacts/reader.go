// SPDX-License-Identifier: Apache-2.0

// Package nodefacts reads on a node what `kubectl patchbay preflight` checks. It reads files only, and changes
// nothing.
package nodefacts

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/daemon/internal/backend/delegate"
	"github.com/patchbay-cni/patchbay/internal/preflight"
)

// maxFile bounds what is read of one file.
const maxFile = 16 << 20

// Reader reads the facts of a node.
type Reader struct {
	// HostRoot is the folder at which the node's root file system is mounted, and Host has its files.
	HostRoot string
	Host     fs.FS
	// Proc and Sys have the files of procfs and sysfs, of the node's network namespace.
	Proc, Sys fs.FS
	// BinDir and ConfDir are the folders of CNI plugins and configurations on the node.
	BinDir, ConfDir string
	// DefaultDelegate is the name of the file that Pods without an annotation shall get. Empty is the first one.
	DefaultDelegate string
	// Runtime is the container runtime and its version as in the Node's status, such as containerd://1.7.2. If it is
	// empty, it is unknown.
	Runtime string
}

// Read reads all facts. What it cannot read it names in the facts' Errors.
func (r *Reader) Read(ctx context.Context) *preflight.Facts {
	f := &preflight.Facts{Options: map[string]preflight.Availability{}, CNI: preflight.CNIFacts{BinDir: r.BinDir, ConfDir: r.ConfDir}}
	release, err := readFile(r.Proc, "sys/kernel/osrelease")
	note(f, err)
	f.Kernel = strings.TrimSpace(string(release))
	note(f, r.readOptions(f))
	f.ModulesDisabled = r.sysctl("kernel/modules_disabled") == 1
	f.MaxNetworkNamespaces = r.sysctl("user/max_net_namespaces")
	f.IPv6, err = exists(r.Proc, "sys/net/ipv6")
	note(f, err)
	f.Listening, err = r.listening()
	note(f, err)
	f.NICs, err = r.nics()
	note(f, err)
	note(f, r.readCNI(ctx, &f.CNI))
	return f
}

// note adds an error to the facts. The texts of errors that were joined are lines: each becomes one of its own.
func note(f *preflight.Facts, err error) {
	if err != nil {
		f.Errors = append(f.Errors, strings.Split(err.Error(), "\n")...)
	}
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
	config, configErr := r.kernelConfig(f.Kernel)
	loaded, loadedErr := moduleNames(r.Proc, "modules")
	builtIn, builtInErr := moduleNames(r.Host, path.Join("lib/modules", f.Kernel, "modules.builtin"))
	loadable, loadableErr := moduleNames(r.Host, path.Join("lib/modules", f.Kernel, "modules.dep"))
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
	return errors.Join(configErr, loadedErr, builtInErr, loadableErr)
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
		if data, err := readIfExists(r.Host, name); err != nil || data != nil {
			return parseConfig(data), err
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

// parseConfig reads lines as `CONFIG_VXLAN=m`. It returns nil without data.
func parseConfig(data []byte) map[string]string {
	if data == nil {
		return nil
	}
	options := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && strings.HasPrefix(name, "CONFIG_") {
			options[name] = value
		}
	}
	return options
}

// moduleNames returns the names of modules that a file lists, as modules.builtin, modules.dep and /proc/modules do.
// It returns nil if the file does not exist or cannot be read.
func moduleNames(files fs.FS, name string) (map[string]bool, error) {
	data, err := readIfExists(files, name)
	if err != nil || data == nil {
		return nil, err
	}
	names := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		first, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		file := path.Base(strings.TrimSuffix(first, ":"))
		file, _, _ = strings.Cut(file, ".ko")
		names[strings.ReplaceAll(file, "-", "_")] = true
	}
	return names, nil
}

// listening returns the TCP ports on which the node's programs listen, unless they listen on a loopback address only.
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
			address, digits, _ := strings.Cut(fields[1], ":")
			if port, err := strconv.ParseUint(digits, 16, 16); err == nil && !isLoopback(address) {
				listed = append(listed, int(port))
			}
		}
	}
	slices.Sort(listed)
	return slices.Compact(listed), nil
}

// isLoopback reports whether an address as in /proc/net/tcp and tcp6 is a loopback address. The kernel prints it as
// words of four bytes, in the order of bytes of the machine.
func isLoopback(text string) bool {
	data, err := hex.DecodeString(text)
	if err != nil || len(data)%4 != 0 {
		return false
	}
	for word := range slices.Chunk(data, 4) {
		binary.NativeEndian.PutUint32(word, binary.BigEndian.Uint32(word))
	}
	address, ok := netip.AddrFromSlice(data)
	return ok && address.Unmap().IsLoopback()
}

// nics returns the network cards, bonds, bridges and VLANs: what a network can name as its host_device. The
// interfaces of Pods, tunnels and other CNI plugins would make the list long.
func (r *Reader) nics() ([]preflight.NIC, error) {
	entries, err := fs.ReadDir(r.Sys, "class/net")
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	var found []preflight.NIC
	var failed []error
	for _, e := range entries {
		folder := path.Join("class/net", e.Name())
		if !r.canHaveNetworks(folder) {
			continue
		}
		mtu, err := readFile(r.Sys, folder+"/mtu")
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			continue // the interface was removed meanwhile
		}
		nic := preflight.NIC{Name: e.Name(), State: r.attribute(folder, "operstate")}
		if err == nil {
			nic.MTU, err = strconv.Atoi(strings.TrimSpace(string(mtu)))
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("read MTU of %s: %w", nic.Name, err))
			continue
		}
		found = append(found, nic)
	}
	return found, errors.Join(failed...)
}

// canHaveNetworks reports whether an interface is a network card, a bond, a bridge or a VLAN.
func (r *Reader) canHaveNetworks(folder string) bool {
	for _, name := range []string{"/device", "/bonding"} {
		if found, err := exists(r.Sys, folder+name); found && err == nil {
			return true
		}
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

// The beginnings of Reader.Runtime.
const (
	containerd = "containerd://"
	crio       = "cri-o://"
)

// runtimeFiles returns the files that may have the configuration of the node's runtime. A node may also have files of
// a runtime that it does not use. Without a runtime, the files of all runtimes count, those of a distribution first.
func (r *Reader) runtimeFiles() []string {
	k3s := []string{"/var/lib/rancher/k3s/agent/etc/containerd/config.toml", "/var/lib/rancher/rke2/agent/etc/containerd/config.toml"}
	own, ofCRIO := []string{"/etc/containerd/config.toml"}, []string{"/etc/crio/crio.conf"}
	switch {
	case r.Runtime == "":
		return slices.Concat(k3s, own, ofCRIO)
	case strings.HasPrefix(r.Runtime, containerd) && strings.Contains(r.Runtime, "k3s"): // RKE2 has it, too
		return k3s
	case strings.HasPrefix(r.Runtime, containerd):
		return own
	case strings.HasPrefix(r.Runtime, crio):
		return ofCRIO
	default:
		return nil
	}
}

// readCNI reads what the node has of CNI plugins. After an error it goes on with what can be read.
func (r *Reader) readCNI(ctx context.Context, c *preflight.CNIFacts) error {
	var binErr, confErr, listErr, chosenErr error
	if c.HasBinDir, binErr = exists(r.Host, local(r.BinDir)); binErr != nil {
		c.UnreadableDirs = append(c.UnreadableDirs, r.BinDir)
	}
	c.HasConfDir, confErr = exists(r.Host, local(r.ConfDir))
	if confErr == nil {
		c.Files, c.Suspended, listErr = r.configurations(r.ConfDir)
	}
	if confErr == nil && listErr == nil {
		chosenErr = r.readChosen(ctx, c)
	} else {
		c.UnreadableDirs = append(c.UnreadableDirs, r.ConfDir)
	}
	for _, dir := range otherConfDirs() {
		if files, _, err := r.configurations(dir); err == nil && len(files) > 0 && dir != path.Clean(r.ConfDir) {
			c.OtherConfDirs = append(c.OtherConfDirs, dir)
		}
	}
	return errors.Join(binErr, confErr, listErr, chosenErr, r.readRuntime(c))
}

// readChosen reads which configuration Pods without an annotation would get, and which the runtime would use instead
// of Patchbay's.
func (r *Reader) readChosen(ctx context.Context, c *preflight.CNIFacts) error {
	// The daemon has both folders mounted, so links of the folders themselves are resolved on the node.
	confDir, binDir := r.resolve(r.ConfDir), r.resolve(r.BinDir)
	checker := delegate.Checker{
		HostRoot: r.HostRoot, BinDir: binDir, ConfDir: confDir,
		Node: delegate.NodeConfigurations{Dir: confDir, Own: preflight.OwnConfiguration, Named: r.DefaultDelegate},
	}
	onNode := func(err error) string {
		return r.onNode(strings.NewReplacer(confDir+"/", r.ConfDir+"/", binDir+"/", r.BinDir+"/").Replace(err.Error()))
	}
	var err error
	if c.Chosen, _, err = checker.NodeConfiguration(ctx); err != nil {
		c.ChosenError = onNode(err)
	}
	earlier, err := checker.EarlierConfigurations()
	for _, e := range earlier {
		file := preflight.EarlierFile{Name: e.File, CallsPatchbay: e.CallsPatchbay}
		if e.Err != nil {
			file.Error = onNode(e.Err)
		}
		c.Earlier = append(c.Earlier, file)
	}
	return err
}

// resolve returns the path of a folder of the node in the program's own root, without links. A folder that does not
// exist has none.
func (r *Reader) resolve(dir string) string {
	if resolved, err := (HostFiles{Root: r.HostRoot}).resolve(local(dir)); err == nil {
		return resolved
	}
	return filepath.Join(r.HostRoot, dir)
}

// configurations returns the names of the files that a runtime reads in a folder, in its order, and of those that
// Cilium has renamed. A folder that does not exist has none.
func (r *Reader) configurations(dir string) (files, suspended []string, err error) {
	entries, err := fs.ReadDir(r.Host, local(dir))
	if isMissing(err) {
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

// readRuntime reads the first file of the node's runtime that exists. Of CRI-O, which is configured by drop-ins, it
// also reads these.
func (r *Reader) readRuntime(c *preflight.CNIFacts) error {
	var failed []error
	for _, name := range r.runtimeFiles() {
		data, err := readIfExists(r.Host, local(name))
		failed = append(failed, err)
		if data != nil {
			c.RuntimeFile = name
			parseRuntime(c, data)
			break
		}
	}
	dropIns, err := fs.Glob(r.Host, "etc/crio/crio.conf.d/*")
	if err != nil || r.Runtime != "" && !strings.HasPrefix(r.Runtime, crio) || strings.HasSuffix(c.RuntimeFile, "/config.toml") {
		return errors.Join(failed...)
	}
	for _, name := range dropIns { // the last one has precedence
		data, err := readIfExists(r.Host, name)
		failed = append(failed, err)
		if data != nil {
			c.RuntimeFile = "/" + name
			parseRuntime(c, data)
		}
	}
	return errors.Join(failed...)
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

// exists reports whether a file exists. It returns an error if that cannot be found out.
func exists(files fs.FS, name string) (bool, error) {
	_, err := fs.Stat(files, name)
	if isMissing(err) {
		return false, nil
	}
	return err == nil, err
}

// readIfExists returns nil if the file does not exist.
func readIfExists(files fs.FS, name string) ([]byte, error) {
	data, err := readFile(files, name)
	if isMissing(err) {
		return nil, nil
	}
	return data, err
}

// isMissing reports whether an error is that a file, or a folder of its path, does not exist.
func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) }

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
