// SPDX-License-Identifier: Apache-2.0

package delegate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/go-logr/logr"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// resultVersion is the CNI version of results in the journal. It has all fields of 1.1.0.
const resultVersion = "1.0.0"

// invocation runs the plugins of one interface. It does not use libcni's own loop, which
// stores the results in files of its own and reads them for DEL: ours are in the journal
// with everything else that DEL needs.
type invocation struct {
	exec *executor
	list *libcni.NetworkConfigList
	args cniArgs
	// master, if not empty, is the host link that the first plugin gets as "master". The
	// journalled configuration does not change.
	master string
	// runtimeConfig has what the runtime passes, by capability.
	runtimeConfig map[string]json.RawMessage
	// skipMissing skips DEL of plugins that are not installed, also while the network namespace exists.
	skipMissing bool
}

// runAdd runs ADD with each plugin. Each gets the result of the one before.
func (r *invocation) runAdd(ctx context.Context) (*types100.Result, error) {
	var result types.Result
	for _, p := range r.list.Plugins {
		path, stdin, err := r.pluginInput(p, result)
		if err == nil {
			result, err = invoke.ExecPluginWithResult(ctx, path, stdin, r.args.withCommand("ADD"), validatingExecutor{r.exec})
		}
		if err != nil {
			return nil, pluginError(p, "ADD", err)
		}
	}
	converted, err := result.GetAsVersion(resultVersion)
	if err != nil {
		return nil, fmt.Errorf("convert the result of %s from CNI %s: %w", r.list.Name, result.Version(), err)
	}
	final, ok := converted.(*types100.Result)
	if !ok {
		return nil, fmt.Errorf("convert the result of %s: got %T", r.list.Name, converted)
	}
	return final, nil
}

// validatingExecutor rejects results with a null in a list: the CNI library would panic when it
// converts them.
type validatingExecutor struct{ *executor }

// ExecPlugin is executor.ExecPlugin with a check of the result.
func (e validatingExecutor) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	out, err := e.executor.ExecPlugin(ctx, path, stdin, environ)
	if err == nil {
		err = checkNoNullItems(out)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// checkNoNullItems checks the lists of a result of any version.
func checkNoNullItems(out []byte) error {
	var lists struct {
		Interfaces, IPs, Routes []*json.RawMessage
	}
	if err := json.Unmarshal(out, &lists); err != nil {
		return fmt.Errorf("decode its result: %w", err)
	}
	for key, list := range map[string][]*json.RawMessage{"interfaces": lists.Interfaces, "ips": lists.IPs, "routes": lists.Routes} {
		for i, item := range list {
			if item == nil {
				return fmt.Errorf("decode its result: %s[%d] is null", key, i)
			}
		}
	}
	return nil
}

// runDel runs DEL with each plugin, the last first. Final is the result of ADD, or nil if ADD
// did not finish. It runs all plugins, and joins the errors of those that fail.
func (r *invocation) runDel(ctx context.Context, final *types100.Result) error {
	prev, err := r.prevResult(final)
	if err != nil {
		return err
	}
	var failed []error
	for _, p := range slices.Backward(r.list.Plugins) {
		path, stdin, err := r.pluginInput(p, prev)
		if err == nil {
			err = invoke.ExecPluginWithoutResult(ctx, path, stdin, r.args.withCommand("DEL"), r.exec)
		}
		switch {
		case err == nil:
		case r.canSkipDel(err):
			logr.FromContextOrDiscard(ctx).Info("Skipped DEL of a CNI plugin that is not installed any more",
				"plugin", p.Network.Type, "sandbox", r.args.containerID, "interface", r.args.ifName)
		default:
			failed = append(failed, pluginError(p, "DEL", err))
		}
	}
	return errors.Join(failed...)
}

// canSkipDel reports whether DEL can never run and has nothing to clean up in the Pod: the
// plugin was uninstalled, and the network namespace is gone. An error would keep the
// sandbox's record and addresses forever. With skipMissing there is no record, and an error would keep kubelet
// from ever removing the Pod.
func (r *invocation) canSkipDel(err error) bool {
	return errors.Is(err, errPluginNotInstalled) && (r.args.netns == "" || r.skipMissing)
}

// prevResult returns the result of ADD for DEL, in the list's version; nil before CNI 0.4.0,
// where DEL has no prevResult.
func (r *invocation) prevResult(final *types100.Result) (types.Result, error) {
	if final == nil {
		return nil, nil
	}
	supported, err := version.GreaterThanOrEqualTo(r.list.CNIVersion, "0.4.0")
	if err != nil || !supported {
		return nil, err
	}
	prev, err := final.GetAsVersion(r.list.CNIVersion)
	if err != nil {
		return nil, fmt.Errorf("convert the result of %s to CNI %s: %w", r.list.Name, r.list.CNIVersion, err)
	}
	return prev, nil
}

// pluginInput returns the plugin's path and its standard input (CNI 1.1, section 4,
// "Deriving request configuration from plugin configuration").
func (r *invocation) pluginInput(p *libcni.PluginConfig, prev types.Result) (path string, stdin []byte, err error) {
	path, err = r.exec.FindInPath(p.Network.Type, r.args.searchDirs())
	if err != nil {
		return "", nil, err
	}
	keys := map[string]any{"name": r.list.Name, "cniVersion": r.list.CNIVersion}
	if prev != nil {
		keys["prevResult"] = prev
	}
	if r.master != "" && p == r.list.Plugins[0] {
		keys["master"] = r.master
	}
	if values := r.capabilityValues(p); len(values) > 0 {
		keys["runtimeConfig"] = values
	}
	p, err = libcni.InjectConf(p, keys)
	if err != nil {
		return "", nil, fmt.Errorf("derive its configuration: %w", err)
	}
	return path, p.Bytes, nil
}

// capabilityValues returns what the runtime passes for the capabilities that a plugin declares (CNI
// conventions, "Dynamic Plugin specific fields").
func (r *invocation) capabilityValues(p *libcni.PluginConfig) map[string]json.RawMessage {
	values := map[string]json.RawMessage{}
	for capability, enabled := range p.Network.Capabilities {
		if value, ok := r.runtimeConfig[capability]; ok && enabled {
			values[capability] = value
		}
	}
	return values
}

// pluginError adds the plugin's name. CNI error 11 of a plugin wraps attach.ErrTryAgain.
func pluginError(p *libcni.PluginConfig, command string, err error) error {
	err = fmt.Errorf("CNI plugin %s: %s: %w", p.Network.Type, command, err)
	if own := (*types.Error)(nil); errors.As(err, &own) && own.Code == types.ErrTryAgainLater {
		return fmt.Errorf("%w: %w", attach.ErrTryAgain, err)
	}
	return err
}
