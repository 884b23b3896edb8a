// SPDX-License-Identifier: Apache-2.0

package delegate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/cni/config"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// NodeConfigurations finds the CNI configuration that Pods without a network get: the first file of the
// runtime's folder, in the runtime's order, that is not Patchbay's.
type NodeConfigurations struct {
	// Dir is the runtime's folder of configurations, in the daemon's own root.
	Dir string
	// Own is the name of Patchbay's file in it.
	Own string
}

// nodeConfiguration is a CNI configuration list of the runtime's folder.
type nodeConfiguration struct {
	file string
	list *libcni.NetworkConfigList
	// data is the list as JSON.
	data []byte
}

// first returns the first configuration that is not Patchbay's. An invalid file before it is an error: a
// runtime would not start Pods with the next file either, and an installer may be writing it. The error
// wraps attach.ErrNoDefaultNetwork if there is none.
func (c NodeConfigurations) first() (nodeConfiguration, error) {
	entries, err := os.ReadDir(c.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nodeConfiguration{}, fmt.Errorf("read the runtime's CNI configurations: %w", err)
	}
	for _, file := range candidates(entries, c.Own) {
		found, err := c.load(file)
		if err != nil {
			return nodeConfiguration{}, fmt.Errorf("CNI configuration %s, which is the first beside Patchbay's: %w: correct or remove the file",
				filepath.Join(c.Dir, file), err)
		}
		if !leadsBack(found.list) {
			return found, nil
		}
	}
	return nodeConfiguration{}, fmt.Errorf("%w: folder %s must have a CNI configuration beside Patchbay's (.conflist, .conf or .json) for Pods without annotation %s: install a CNI plugin, or create a ClusterNetwork %q",
		attach.ErrNoDefaultNetwork, c.Dir, v1.InterfacesAnnotation, v1.DefaultNetworkName)
}

// candidates returns the names of the files that a runtime reads, in its order: containerd and CRI-O sort
// the names of files with these endings.
func candidates(entries []fs.DirEntry, own string) []string {
	var names []string
	for _, e := range entries {
		if !e.IsDir() && e.Name() != own && slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name())) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names
}

// load reads a file as runtimes do: a .conflist is a list, any other file a single configuration.
func (c NodeConfigurations) load(file string) (nodeConfiguration, error) {
	data, err := readFile(c.Dir, file)
	if ending := filepath.Ext(file); err == nil && ending != ".conflist" {
		data, err = wrapInList(strings.TrimSuffix(file, ending), data)
	}
	if err != nil {
		return nodeConfiguration{}, err
	}
	list, err := parseList(data)
	if err != nil {
		return nodeConfiguration{}, err
	}
	return nodeConfiguration{file: file, list: list, data: data}, nil
}

// leadsBack reports whether a list has Patchbay, under another name of the file, or Multus, which itself
// calls the first configuration of the folder: Patchbay's. Either would wait for its own answer.
func leadsBack(list *libcni.NetworkConfigList) bool {
	return slices.ContainsFunc(list.Plugins, func(p *libcni.PluginConfig) bool {
		return slices.Contains([]string{config.PluginType, "multus", "multus-shim"}, p.Network.Type)
	})
}
