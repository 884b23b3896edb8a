// SPDX-License-Identifier: Apache-2.0

package delegate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"syscall"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/utils"
)

// maxPlugins is the most plugins of a list: each is an execution or two.
const maxPlugins = 32

// fileNamePattern are names that may become part of a path on the host. The API has the same
// rule, which the daemon does not rely on.
var fileNamePattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)

// maxConfig is the largest configuration file in bytes: it is journalled with every attachment.
const maxConfig = 64 << 10

// loadConfig reads and parses the configuration list of a network for its plugin.
func loadConfig(dir, id, plugin string) (*libcni.NetworkConfigList, []byte, error) {
	data, err := readConfig(dir, id)
	if err != nil {
		return nil, nil, err
	}
	list, err := parseList(data)
	if err != nil {
		return nil, nil, fmt.Errorf("delegate's configuration %s in %s: %w", id, dir, err)
	}
	if first := list.Plugins[0].Network.Type; first != plugin {
		return nil, nil, fmt.Errorf("delegate's configuration %s in %s is for plugin %q, but the network's NetworkType is %q: they must be equal",
			id, dir, first, plugin)
	}
	return list, data, nil
}

// readConfig reads the network's configuration list from the directory: <id>.conflist, or
// <id>.conf as a list of one plugin.
func readConfig(dir, id string) ([]byte, error) {
	if !fileNamePattern.MatchString(id) {
		return nil, fmt.Errorf("NetworkID %q must be a file name of letters, digits, '_', '.' and '-'", id)
	}
	list, listErr := readFile(dir, id+".conflist", maxConfig)
	single, err := readFile(dir, id+".conf", maxConfig)
	noList, noSingle := errors.Is(listErr, fs.ErrNotExist), errors.Is(err, fs.ErrNotExist)
	switch {
	case noList && noSingle:
		return nil, fmt.Errorf("the delegate's configuration is missing: neither %[1]s.conflist nor %[1]s.conf exists on this node",
			filepath.Join(dir, id))
	case listErr != nil && !noList:
		return nil, listErr
	case noSingle:
		return list, nil
	case err != nil:
		return nil, err
	case noList:
		return wrapInList(id, single)
	}
	return nil, fmt.Errorf("the delegate's configuration exists twice: remove %[1]s.conflist or %[1]s.conf", filepath.Join(dir, id))
}

// readFile reads a regular file of the directory, of at most limit bytes. It rejects symbolic links that lead out of
// the directory; Kubernetes uses links within it to mount a ConfigMap.
func readFile(dir, name string, limit int64) (data []byte, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open configuration directory: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	// Without O_NONBLOCK, the open of a named pipe would block.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read configuration in %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, fmt.Errorf("read configuration %s: %s of %d bytes: must be a regular file of at most %d bytes",
			filepath.Join(dir, name), info.Mode().Type(), info.Size(), limit)
	}
	data, err = io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return data, nil
}

// wrapInList returns a list with the configuration of a single plugin: the code and the journal
// have lists only. A configuration without a name, such as DANM's flannel.conf, gets id.
func wrapInList(id string, data []byte) ([]byte, error) {
	var head struct {
		Name       json.RawMessage `json:"name"`
		CNIVersion json.RawMessage `json:"cniVersion"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("parse configuration: %w", err)
	}
	list := map[string]any{"name": id, "plugins": []json.RawMessage{data}}
	if head.Name != nil {
		list["name"] = head.Name
	}
	if head.CNIVersion != nil {
		list["cniVersion"] = head.CNIVersion
	}
	return json.Marshal(list)
}

// parseList parses a configuration list (CNI 1.1, section 1) and checks the values that become
// a path or an executable.
func parseList(data []byte) (*libcni.NetworkConfigList, error) {
	list, err := libcni.NetworkConfFromBytes(data)
	if err != nil {
		return nil, fmt.Errorf("parse configuration list: %w", err)
	}
	if err := utils.ValidateNetworkName(list.Name); err != nil {
		return nil, fmt.Errorf("parse configuration list: name %q: %w", list.Name, err)
	}
	if len(list.Plugins) == 0 || len(list.Plugins) > maxPlugins {
		return nil, fmt.Errorf("parse configuration list %s: plugins: it has %d plugins, must have 1 to %d",
			list.Name, len(list.Plugins), maxPlugins)
	}
	for i, p := range list.Plugins {
		if !fileNamePattern.MatchString(p.Network.Type) {
			return nil, fmt.Errorf("parse configuration list %s: plugins[%d].type: %q must be a plugin's file name without a path", list.Name, i, p.Network.Type)
		}
	}
	return list, nil
}
