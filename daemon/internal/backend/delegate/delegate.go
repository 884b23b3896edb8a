// SPDX-License-Identifier: Apache-2.0

// Package delegate attaches Pods through other CNI plugins: flannel or Calico for eth0, or any
// plugin that a network's type names. The network's ID names a configuration or a
// configuration list in the CNI configuration directory. It is journalled before the first
// plugin runs, so that DEL uses the same configuration.
package delegate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// undoTimeout bounds the DEL after a failed ADD.
const undoTimeout = 30 * time.Second

// Options configure a Delegate. The zero value is valid.
type Options struct {
	// HostRoot, such as /host, is the directory with the host's files. It is the root
	// directory of plugins, which may need the host's libraries and configuration. Empty or
	// "/" is the daemon's own root. CNI_PATH and the network namespace are paths below it. It
	// requires CAP_SYS_CHROOT.
	HostRoot string
	// Timeout bounds one execution of a plugin; zero is 60 s.
	Timeout time.Duration
	// Node finds the configuration of Pods that have no network.
	Node NodeConfigurations
	// RuntimeCache is the folder in which container runtimes store what DEL needs of an ADD, in the daemon's own
	// root. Empty is that of libcni in HostRoot.
	RuntimeCache string
}

// Delegate is the backend of networks whose type names another plugin. It has no state: the
// journal has all that DEL needs.
type Delegate struct {
	exec         *executor
	node         NodeConfigurations
	runtimeCache string
}

// New returns the backend.
func New(o Options) *Delegate {
	return &Delegate{exec: &executor{
		root:    cmp.Or(o.HostRoot, "/"),
		timeout: cmp.Or(o.Timeout, defaultTimeout),
	}, node: o.Node, runtimeCache: cmp.Or(o.RuntimeCache, filepath.Join("/", o.HostRoot, defaultRuntimeCache))}
}

// Prepare reads <CNIDir>/<NetworkID>.conflist or .conf into the interface. The network's type
// must be that of the first plugin: a tenant that may use one plugin must not be able to use
// the configuration of another. For a Pod without a network, Prepare chooses the node's configuration.
func (d *Delegate) Prepare(ctx context.Context, req *attach.Request, ifc *attach.Interface) error {
	if ifc.Name == req.IfName && len(req.RuntimeConfig) > 0 {
		// An invalid one must fail now: with it in the journal, DEL would fail, too.
		if err := json.Unmarshal(req.RuntimeConfig, &map[string]json.RawMessage{}); err != nil {
			return fmt.Errorf("runtimeConfig of the request must be an object: %w", err)
		}
		ifc.RuntimeConfig = req.RuntimeConfig
	}
	if ifc.Network.IsNodeConfiguration() {
		chosen, err := d.node.choose(ctx, req.PodNamespace)
		if err != nil {
			return err
		}
		ifc.Network.Ref.Name, ifc.DelegateConfig = chosen.file, chosen.data
		return nil
	}
	_, data, err := loadConfig(req.CNIDir, ifc.Network.ID, ifc.Network.Type)
	if err != nil {
		return err
	}
	ifc.DelegateConfig = data
	return nil
}

// Attach runs ADD with each plugin of the list and sets Result, MAC and MTU. After an error it
// runs DEL.
func (d *Delegate) Attach(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	r, err := d.newInvocation(rec, ifc)
	if err != nil {
		return err
	}
	result, err := r.runAdd(ctx)
	if err == nil {
		err = setResult(ifc, result)
	}
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if undo := r.runDel(ctx, result); undo != nil {
		return errors.Join(err, fmt.Errorf("undo: %w", undo))
	}
	return err
}

// setResult sets the interface's Result, MAC and MTU. MAC and MTU stay empty if the result has
// none: before CNI 1.1 it has no MTU.
func setResult(ifc *attach.Interface, result *types100.Result) error {
	if err := validateResult(result); err != nil {
		return err
	}
	data, err := json.Marshal(result)
	if err == nil {
		// A route without a destination can be encoded, but not decoded.
		err = json.Unmarshal(data, &types100.Result{})
	}
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	ifc.Result = data
	for _, link := range result.Interfaces {
		if link.Name == ifc.Name && link.Sandbox != "" {
			ifc.MAC, ifc.MTU = link.Mac, link.Mtu
		}
	}
	return nil
}

// validateResult checks the parts of a converted result that the CNI library does not check:
// runtimes do not check the indexes.
func validateResult(r *types100.Result) error {
	for i, ip := range r.IPs {
		if ip.Interface != nil && (*ip.Interface < 0 || *ip.Interface >= len(r.Interfaces)) {
			return fmt.Errorf("result: ips[%d].interface: %d must be the index of one of %d interfaces", i, *ip.Interface, len(r.Interfaces))
		}
		if len(ip.Address.IP) == 0 {
			return fmt.Errorf("result: ips[%d].address must be set", i)
		}
	}
	return nil
}

// Detach runs DEL with each plugin of the list, the last first. A plugin must accept a DEL
// for an interface that is gone (CNI 1.1, section 2, DEL). If the network namespace is gone,
// Detach skips plugins that are not installed any more.
func (d *Delegate) Detach(ctx context.Context, rec *attach.Record, ifc *attach.Interface) error {
	r, err := d.newInvocation(rec, ifc)
	if err != nil {
		return err
	}
	var result *types100.Result
	if len(ifc.Result) > 0 {
		result = &types100.Result{}
		if err := json.Unmarshal(ifc.Result, result); err != nil {
			return fmt.Errorf("decode the journalled result: %w", err)
		}
	}
	return r.runDel(ctx, result)
}

// newInvocation uses nothing but the record.
func (d *Delegate) newInvocation(rec *attach.Record, ifc *attach.Interface) (*invocation, error) {
	list, err := parseList(ifc.DelegateConfig)
	if err != nil {
		return nil, fmt.Errorf("journalled configuration: %w", err)
	}
	r := &invocation{exec: d.exec, list: list, args: newCNIArgs(rec, ifc), master: ifc.Parent}
	if len(ifc.RuntimeConfig) > 0 {
		if err := json.Unmarshal(ifc.RuntimeConfig, &r.runtimeConfig); err != nil {
			return nil, fmt.Errorf("decode the journalled runtimeConfig: %w", err)
		}
	}
	return r, nil
}

var (
	_ attach.Backend  = (*Delegate)(nil)
	_ attach.Preparer = (*Delegate)(nil)

	_ attach.UnknownSandboxes = (*Delegate)(nil)
)
