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

// errUnusable means that a file of the runtime's cache does not tell how to run DEL. After a power cut it may be empty:
// libcni does not flush it to the disk.
var errUnusable = errors.New("the file cannot be used")

// DetachUnknown runs DEL for a sandbox that another plugin attached before Patchbay was installed, with what the
// runtime has stored of its ADD. containerd sends the DEL of each sandbox to the plugin that is configured now, so
// without this the addresses and host ports of such a Pod would stay allocated. CRI-O sends it to the plugin of the
// ADD. A sandbox that the runtime has not stored either is no error. A plugin that is not installed any more is
// skipped, and so is a file that is damaged: an error would keep kubelet from ever removing the Pod.
func (d *Delegate) DetachUnknown(ctx context.Context, req *attach.Request) error {
	names, err := listNames(d.runtimeCache)
	if err != nil {
		return fmt.Errorf("read the container runtime's cache: %w", err)
	}
	var failed []error
	for _, name := range names {
		network, found := strings.CutSuffix(name, "-"+req.ContainerID+"-"+req.IfName)
		if !found {
			continue
		}
		if err := d.detachCached(ctx, req, name, network); err != nil {
			failed = append(failed, fmt.Errorf("detach what the container runtime's cache has in %s: %w", name, err))
		}
	}
	return errors.Join(failed...)
}

// listNames returns the names in a folder, in no order; none if the folder does not exist.
func listNames(dir string) (names []string, err error) {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return f.Readdirnames(-1)
}

// detachCached runs DEL with a file of the runtime's cache, and removes the file, as the runtime does after a DEL.
func (d *Delegate) detachCached(ctx context.Context, req *attach.Request, file, network string) error {
	log := logr.FromContextOrDiscard(ctx).WithValues("sandbox", req.ContainerID, "interface", req.IfName, "file", file)
	r, result, err := d.cachedInvocation(req, file)
	switch {
	case errors.Is(err, errUnusable):
		log.Error(err, "Failed to read what the container runtime has stored of a sandbox from before the installation")
		if r = d.currentInvocation(ctx, req, network); r == nil {
			return nil
		}
	case err != nil:
		return err
	case r == nil || d.wouldReturn(r.list):
		return nil
	}
	if err := r.runDel(ctx, result); err != nil {
		return err
	}
	log.Info("Detached a sandbox from before the installation", "configuration", r.list.Name)
	if err := os.Remove(filepath.Join(d.runtimeCache, file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// wouldReturn reports whether DEL with a list would call Patchbay again, which would wait for its own answer: the
// list has Patchbay, or Multus while the runtime calls Multus before Patchbay.
func (d *Delegate) wouldReturn(list *libcni.NetworkConfigList) bool {
	if !leadsBack(list) {
		return false
	}
	files, err := d.node.files()
	return hasOwn(list) || err != nil || len(files) == 0 || files[0] != d.node.Own
}

// cachedInvocation returns the invocation of a file of the runtime's cache, with the result of its ADD or nil. It
// returns neither for a file of another sandbox, and for one that is gone. The error wraps errUnusable if the file
// is damaged.
func (d *Delegate) cachedInvocation(req *attach.Request, file string) (*invocation, *types100.Result, error) {
	cached, err := readCached(d.runtimeCache, file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	case cached.ContainerID != req.ContainerID || cached.IfName != req.IfName:
		return nil, nil, nil
	case cached.Kind != libcni.CNICacheV1:
		return nil, nil, fmt.Errorf("%w: kind must be %s: got %q", errUnusable, libcni.CNICacheV1, cached.Kind)
	}
	list, err := parseCached(cached)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errUnusable, err)
	}
	result, err := convertCached(cached.Result)
	if err != nil {
		result = nil // DEL works without it (CNI 1.1, section 2, DEL)
	}
	r := d.unknownInvocation(req, list, joinArgs(cached.CNIArgs))
	r.runtimeConfig = cached.CapabilityArgs
	return r, result, nil
}

// currentInvocation returns the invocation of the node's own configuration if it is of a network with this name,
// as the runtime would use without its cache, else nil.
func (d *Delegate) currentInvocation(ctx context.Context, req *attach.Request, network string) *invocation {
	node := d.node
	node.Named = "" // before the installation, the runtime used the first file
	chosen, err := node.choose(ctx, "")
	if err != nil || chosen.list.Name != network {
		return nil
	}
	return d.unknownInvocation(req, chosen.list, "IgnoreUnknown=1")
}

func (d *Delegate) unknownInvocation(req *attach.Request, list *libcni.NetworkConfigList, podArgs string) *invocation {
	return &invocation{
		exec: d.exec, list: list, skipMissing: true,
		args: cniArgs{containerID: req.ContainerID, netns: req.Netns, ifName: req.IfName, path: req.Path, podArgs: podArgs},
	}
}

// readCached reads a file of the runtime's cache. The error wraps errUnusable if the file has no attachment.
func readCached(dir, file string) (cachedAttachment, error) {
	var cached cachedAttachment
	data, err := readFile(dir, file, maxCachedAttachment)
	if err != nil {
		return cached, err
	}
	if err := json.Unmarshal(data, &cached); err != nil {
		return cached, fmt.Errorf("%w: decode: %w", errUnusable, err)
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
