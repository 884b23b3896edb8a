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

// plugins that one list may have; each is an execution or two.
const maxPlugins = 32

// fileNamePattern is what may become part of a path on the host. The API has the same
// rule; this is the daemon's own check.
var fileNamePattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)

// maxConfig is the largest configuration file in bytes; it is journalled with
// every attachment.
const maxConfig = 64 << 10

// readConfig reads the network's configuration list from the folder: of
// <id>.conflist, or <id>.conf as a list of one.
func readConfig(dir, id string) ([]byte, error) {
	if !fileNamePattern.MatchString(id) {
		return nil, fmt.Errorf("NetworkID %q is no file name", id)
	}
	list, listErr := readFile(dir, id+".conflist")
	single, err := readFile(dir, id+".conf")
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
		return wrapInList(single)
	}
	return nil, fmt.Errorf("the delegate's configuration is there twice: remove %[1]s.conflist or %[1]s.conf", filepath.Join(dir, id))
}

// readFile reads a regular file of the folder. Links that lead out of it are
// refused; those within are how Kubernetes mounts a ConfigMap.
func readFile(dir, name string) (data []byte, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open configuration folder: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	// Without O_NONBLOCK a named pipe would hold the ADD up for ever.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read configuration in %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxConfig {
		return nil, fmt.Errorf("read configuration %s: %s of %d bytes, want a file of at most %d",
			filepath.Join(dir, name), info.Mode().Type(), info.Size(), maxConfig)
	}
	data, err = io.ReadAll(io.LimitReader(f, maxConfig))
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return data, nil
}

// wrapInList makes a list of a single plugin's configuration, so that there is one
// form behind this line and in the journal.
func wrapInList(data []byte) ([]byte, error) {
	var head struct {
		Name       json.RawMessage `json:"name"`
		CNIVersion json.RawMessage `json:"cniVersion"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("parse configuration: %w", err)
	}
	list := map[string]any{"plugins": []json.RawMessage{data}}
	if head.Name != nil {
		list["name"] = head.Name
	}
	if head.CNIVersion != nil {
		list["cniVersion"] = head.CNIVersion
	}
	return json.Marshal(list)
}

// parseList reads a configuration list (CNI 1.1, section 1) and checks what
// becomes a path or an executable.
func parseList(data []byte) (*libcni.NetworkConfigList, error) {
	list, err := libcni.NetworkConfFromBytes(data)
	if err != nil {
		return nil, fmt.Errorf("parse configuration list: %w", err)
	}
	if err := utils.ValidateNetworkName(list.Name); err != nil {
		return nil, fmt.Errorf("parse configuration list: name %q: %w", list.Name, err)
	}
	if len(list.Plugins) == 0 || len(list.Plugins) > maxPlugins {
		return nil, fmt.Errorf("parse configuration list %s: it has %d plugins, want 1 to %d in its key plugins",
			list.Name, len(list.Plugins), maxPlugins)
	}
	for i, p := range list.Plugins {
		if !fileNamePattern.MatchString(p.Network.Type) {
			return nil, fmt.Errorf("parse configuration list %s: plugins[%d].type %q is no plugin's file name", list.Name, i, p.Network.Type)
		}
	}
	return list, nil
}
