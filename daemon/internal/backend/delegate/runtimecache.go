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
	"strings"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/go-logr/logr"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// defaultRuntimeCache is where libcni, and so each container runtime, stores what DEL needs of an ADD, on the host.
const defaultRuntimeCache = "/var/lib/cni/results"

// maxCachedAttachment is the largest file of the runtime's cache in bytes.
const maxCachedAttachment = 1 << 20

// cachedAttachment is a file of the runtime's cache (libcni, cachedInfo, kind cniCacheV1).
type cachedAttachment struct {
	Kind           string                     `json:"kind"`
	ContainerID    string                     `json:"containerId"`
	Config         []byte                     `json:"config"`
	IfName         string                     `json:"ifName"`
	NetworkName    string                     `json:"networkName"`
	CNIArgs        [][2]string                `json:"cniArgs"`
	CapabilityArgs map[string]json.RawMessage `json:"capabilityArgs"`
	Result         json.RawMessage            `json:"result"`
}

// DetachUnknown runs DEL for a sandbox that another plugin attached before Patchbay was installed, with what the
// runtime has stored of its ADD. containerd sends the DEL of each sandbox to the plugin that is configured now, so
// without this the addresses and host ports of such a Pod would stay allocated. CRI-O sends it to the plugin of the
// ADD. A sandbox that the runtime has not stored either is no error. A plugin that is not installed any more is
// skipped.
func (d *Delegate) DetachUnknown(ctx context.Context, req *attach.Request) error {
	entries, err := os.ReadDir(d.runtimeCache)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the container runtime's cache: %w", err)
	}
	var failed []error
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), "-"+req.ContainerID+"-"+req.IfName) {
			continue
		}
		if err := d.detachCached(ctx, req, e.Name()); err != nil {
			failed = append(failed, fmt.Errorf("detach what the container runtime's cache has in %s: %w", e.Name(), err))
		}
	}
	return errors.Join(failed...)
}

// detachCached runs DEL with a file of the runtime's cache, and removes the file, as the runtime does after a DEL.
func (d *Delegate) detachCached(ctx context.Context, req *attach.Request, file string) error {
	cached, err := readCached(d.runtimeCache, file)
	if err != nil || cached.Kind != libcni.CNICacheV1 || cached.ContainerID != req.ContainerID || cached.IfName != req.IfName {
		return err
	}
	list, err := parseCached(cached)
	if err != nil {
		return err
	}
	if leadsBack(list) { // the runtime removes it after this DEL
		return nil
	}
	var result *types100.Result
	if len(cached.Result) > 0 {
		if result, err = convertCached(cached.Result); err != nil {
			return err
		}
	}
	r := &invocation{
		exec: d.exec, list: list, runtimeConfig: cached.CapabilityArgs, skipMissing: true,
		args: cniArgs{containerID: req.ContainerID, netns: req.Netns, ifName: req.IfName, path: req.Path, podArgs: joinArgs(cached.CNIArgs)},
	}
	if err := r.runDel(ctx, result); err != nil {
		return err
	}
	logr.FromContextOrDiscard(ctx).Info("Detached a sandbox from before the installation",
		"sandbox", req.ContainerID, "interface", req.IfName, "configuration", list.Name)
	if err := os.Remove(filepath.Join(d.runtimeCache, file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// readCached reads a file of the runtime's cache; a file that is gone is empty.
func readCached(dir, file string) (cachedAttachment, error) {
	var cached cachedAttachment
	data, err := readFile(dir, file, maxCachedAttachment)
	if errors.Is(err, fs.ErrNotExist) {
		return cached, nil
	}
	if err != nil {
		return cached, err
	}
	if err := json.Unmarshal(data, &cached); err != nil {
		return cached, fmt.Errorf("decode: %w", err)
	}
	return cached, nil
}

// parseCached parses the configuration of the ADD: a list, or a single configuration from an older runtime.
func parseCached(cached cachedAttachment) (*libcni.NetworkConfigList, error) {
	var head struct {
		Plugins json.RawMessage `json:"plugins"`
	}
	if err := json.Unmarshal(cached.Config, &head); err != nil {
		return nil, fmt.Errorf("decode its configuration: %w", err)
	}
	data := cached.Config
	if head.Plugins == nil {
		var err error
		if data, err = wrapInList(cached.NetworkName, data); err != nil {
			return nil, err
		}
	}
	return parseList(data)
}

// convertCached converts the result of the ADD.
func convertCached(data []byte) (*types100.Result, error) {
	if err := checkNoNullItems(data); err != nil {
		return nil, err
	}
	result, err := create.CreateFromBytes(data)
	if err != nil {
		return nil, fmt.Errorf("decode its result: %w", err)
	}
	converted, err := result.GetAsVersion(resultVersion)
	if err != nil {
		return nil, fmt.Errorf("convert its result: %w", err)
	}
	final, ok := converted.(*types100.Result)
	if !ok {
		return nil, fmt.Errorf("convert its result: got %T", converted)
	}
	return final, nil
}

// joinArgs returns CNI_ARGS.
func joinArgs(args [][2]string) string {
	pairs := make([]string, len(args))
	for i, arg := range args {
		pairs[i] = arg[0] + "=" + arg[1]
	}
	return strings.Join(pairs, ";")
}
