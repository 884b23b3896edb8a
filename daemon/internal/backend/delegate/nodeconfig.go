// SPDX-License-Identifier: Apache-2.0

package delegate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/utils"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/cni/config"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/text"
)

// NodeConfigurations finds the CNI configuration that Pods without a network get: the file that a flag names, or the
// first file of the runtime's folder, in the runtime's order, that is not Patchbay's and that the Pod's namespace may
// use.
type NodeConfigurations struct {
	// Dir is the runtime's folder of configurations, in the daemon's own root.
	Dir string
	// Own is the name of Patchbay's file in it.
	Own string
	// Disabled gives no Pod a configuration.
	Disabled bool
	// Named is the name of the only file that Pods get, whatever sorts before it. Empty is the first one.
	Named string
	// Forbidden returns the names of files, without their endings, that Pods of a namespace may not use, because
	// they are of networks for other namespaces. With an empty namespace, it returns all that some namespace may
	// not use. Nil forbids none.
	Forbidden func(ctx context.Context, namespace string) (map[string]bool, error)
}

// EarlierConfiguration is a file that a runtime reads before Patchbay's.
type EarlierConfiguration struct {
	File string
	// CallsPatchbay tells whether its plugin calls Patchbay, as Multus does with the first file beside its own.
	CallsPatchbay bool
	// Err is why the file is invalid.
	Err error
}

// nodeConfiguration is a CNI configuration list of the runtime's folder.
type nodeConfiguration struct {
	file string
	list *libcni.NetworkConfigList
	// data is the list as JSON.
	data []byte
}

// choose returns the configuration for Pods of a namespace. An error wraps attach.ErrNoDefaultNetwork, unless the API
// server must be asked again.
func (c NodeConfigurations) choose(ctx context.Context, namespace string) (nodeConfiguration, error) {
	if c.Disabled {
		return nodeConfiguration{}, fmt.Errorf("%w: flag --node-configuration of patchbayd is false: add annotation %s, or create a ClusterNetwork %q",
			attach.ErrNoDefaultNetwork, v1.InterfacesAnnotation, v1.DefaultNetworkName)
	}
	var forbidden map[string]bool
	if c.Forbidden != nil {
		var err error
		if forbidden, err = c.Forbidden(ctx, namespace); err != nil {
			return nodeConfiguration{}, fmt.Errorf("check whose CNI configurations the files in %s are: %w", c.Dir, err)
		}
	}
	isForbidden := func(file string) bool { return forbidden[strings.TrimSuffix(file, filepath.Ext(file))] }
	if c.Named == "" {
		return c.first(isForbidden)
	}
	found, err := c.named()
	if err == nil && isForbidden(c.Named) {
		return nodeConfiguration{}, c.namedError("must not be the CNI configuration of a network for other namespaces: add annotation %s to the Pod, or create a network %q for its namespace",
			v1.InterfacesAnnotation, v1.DefaultNetworkName)
	}
	return found, err
}

// first returns the first configuration. An invalid file before it is an error: an installer may be writing the file,
// and its plugin may be the one that the cluster's Pods need. containerd starts no Pod with the next file either;
// CRI-O does.
func (c NodeConfigurations) first(isForbidden func(string) bool) (nodeConfiguration, error) {
	files, err := c.files()
	if err != nil {
		return nodeConfiguration{}, err
	}
	skipped := ""
	for _, file := range files {
		if file == c.Own {
			continue
		}
		if isForbidden(file) {
			skipped = fmt.Sprintf(" (%s is of a network for other namespaces)", file)
			continue
		}
		found, err := c.load(file)
		if err != nil {
			return nodeConfiguration{}, fmt.Errorf("%w: CNI configuration %s, which is the first beside Patchbay's: %w: correct or remove the file",
				attach.ErrNoDefaultNetwork, filepath.Join(c.Dir, file), err)
		}
		if !leadsBack(found.list) {
			return found, nil
		}
	}
	return nodeConfiguration{}, fmt.Errorf("%w: folder %s must have a CNI configuration beside Patchbay's (.conflist, .conf or .json)%s for Pods without annotation %s: install a CNI plugin, or create a ClusterNetwork %q",
		attach.ErrNoDefaultNetwork, c.Dir, skipped, v1.InterfacesAnnotation, v1.DefaultNetworkName)
}

// named returns the configuration that the flag names. No other file replaces one that is missing or invalid: it may
// be of another network.
func (c NodeConfigurations) named() (nodeConfiguration, error) {
	if c.Named != filepath.Base(c.Named) || !isConfiguration(c.Named) {
		return nodeConfiguration{}, c.namedError("must be the name of a file in %s, without a folder, that ends in .conflist, .conf or .json", c.Dir)
	}
	if c.Named == c.Own {
		return nodeConfiguration{}, c.namedError("must not be Patchbay's own file: name the CNI configuration of another plugin in %s", c.Dir)
	}
	found, err := c.load(c.Named)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nodeConfiguration{}, c.namedError("folder %s of this node must have the file: install the CNI plugin that writes it, or name another file", c.Dir)
	case err != nil:
		return nodeConfiguration{}, c.namedError("the file in %s must be a valid CNI configuration: %w: correct it, or name another file", c.Dir, err)
	case leadsBack(found.list):
		return nodeConfiguration{}, c.namedError("the file in %s must not call Patchbay or Multus, which would wait for its own answer: name the file of the plugin that Pods shall get", c.Dir)
	}
	return found, nil
}

// namedError returns an error about the flag that names a file.
func (c NodeConfigurations) namedError(format string, args ...any) error {
	return fmt.Errorf("%w: flag --default-delegate=%s of patchbayd: %w", attach.ErrNoDefaultNetwork, text.Truncate(c.Named, maxNamed), fmt.Errorf(format, args...))
}

// maxNamed bounds what a message has of a name: file systems have no longer ones.
const maxNamed = 255

// checkOwnFirst checks that a runtime uses Patchbay's configuration: the file exists, and none before it is of
// another plugin. Multus may come first, because it calls the plugin of the next file.
func (c NodeConfigurations) checkOwnFirst() error {
	files, err := c.files()
	if err != nil {
		return err
	}
	for _, file := range files {
		if file == c.Own {
			return nil
		}
		found, err := c.load(file)
		if err != nil {
			return fmt.Errorf("the container runtime reads %s before %s, and the file is invalid: %w: correct or remove the file",
				filepath.Join(c.Dir, file), c.Own, err)
		}
		if !leadsBack(found.list) {
			return fmt.Errorf("the container runtime uses %s instead of %s for new Pods: rename the file, so that %s is the first in the order of names",
				filepath.Join(c.Dir, file), c.Own, c.Own)
		}
	}
	return fmt.Errorf("%s is missing, so that the container runtime does not call Patchbay for new Pods: keep other programs from removing or renaming the file, such as Cilium (cni.exclusive must be false), and delete the Pod of patchbayd on this node",
		filepath.Join(c.Dir, c.Own))
}

// earlier returns the files that a runtime reads before Patchbay's, whether or not that one is installed.
func (c NodeConfigurations) earlier() ([]EarlierConfiguration, error) {
	files, err := c.files()
	if err != nil {
		return nil, err
	}
	var all []EarlierConfiguration
	for _, file := range files {
		if file >= c.Own {
			break
		}
		found, err := c.load(file)
		all = append(all, EarlierConfiguration{File: file, CallsPatchbay: err == nil && leadsBack(found.list), Err: err})
	}
	return all, nil
}

// files returns the names of the files that a runtime reads, in its order: containerd and CRI-O sort the names of
// files with these endings.
func (c NodeConfigurations) files() ([]string, error) {
	entries, err := os.ReadDir(c.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the runtime's CNI configurations: %w", err)
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() && isConfiguration(e.Name()) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// isConfiguration reports whether a runtime reads a file with this name.
func isConfiguration(name string) bool {
	return slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(name))
}

// load reads a file as runtimes do: a .conflist is a list, any other file a single configuration.
func (c NodeConfigurations) load(file string) (nodeConfiguration, error) {
	data, err := readFile(c.Dir, file, maxConfig)
	if ending := filepath.Ext(file); err == nil && ending != ".conflist" {
		data, err = wrapInList(strings.TrimSuffix(file, ending), data)
	}
	if err != nil {
		return nodeConfiguration{}, err
	}
	if filepath.Ext(file) == ".conflist" {
		if data, err = c.appendChained(data); err != nil {
			return nodeConfiguration{}, err
		}
	}
	list, err := parseList(data)
	if err != nil {
		return nodeConfiguration{}, err
	}
	return nodeConfiguration{file: file, list: list, data: data}, nil
}

// appendChained returns a list with the plugins that other programs have chained to it: those of the files
// <list's name>/*.conf beside the list, in the order of names (libcni 1.3, NetworkConfFromFile).
func (c NodeConfigurations) appendChained(data []byte) ([]byte, error) {
	list, err := libcni.NetworkConfFromBytes(data)
	if err != nil {
		return nil, fmt.Errorf("parse configuration list: %w", err)
	}
	if list.LoadOnlyInlinedPlugins {
		return data, nil
	}
	if err := utils.ValidateNetworkName(list.Name); err != nil {
		return nil, fmt.Errorf("parse configuration list: name %q: %w", list.Name, err)
	}
	entries, err := os.ReadDir(filepath.Join(c.Dir, list.Name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return nil, fmt.Errorf("read chained plugins: %w", err)
	}
	plugins := make([]json.RawMessage, 0, len(list.Plugins)+len(entries))
	for _, p := range list.Plugins {
		plugins = append(plugins, p.Bytes)
	}
	for _, e := range entries { // sorted
		if filepath.Ext(e.Name()) != ".conf" {
			continue
		}
		plugin, err := readFile(c.Dir, filepath.Join(list.Name, e.Name()), maxConfig)
		if err != nil {
			return nil, err
		}
		plugins = append(plugins, plugin)
	}
	if len(plugins) == len(list.Plugins) {
		return data, nil
	}
	merged := map[string]any{}
	if err := json.Unmarshal(data, &merged); err != nil {
		return nil, fmt.Errorf("parse configuration list: %w", err)
	}
	merged["plugins"] = plugins
	result, err := json.Marshal(merged)
	if err != nil {
		return nil, fmt.Errorf("add chained plugins to %s: %w", list.Name, err)
	}
	return result, nil
}

// leadsBack reports whether a list has Patchbay, under another name of the file, or Multus, which itself
// calls the first configuration of the folder: Patchbay's. Either would wait for its own answer.
func leadsBack(list *libcni.NetworkConfigList) bool {
	return hasOwn(list) || slices.ContainsFunc(list.Plugins, func(p *libcni.PluginConfig) bool {
		return slices.Contains([]string{"multus", "multus-shim"}, p.Network.Type)
	})
}

// hasOwn reports whether a list has Patchbay.
func hasOwn(list *libcni.NetworkConfigList) bool {
	return slices.ContainsFunc(list.Plugins, func(p *libcni.PluginConfig) bool { return p.Network.Type == config.PluginType })
}
