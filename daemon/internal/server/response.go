// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
)

// errorResponse is the answer to a request that failed.
func errorResponse(err error) *wire.Response {
	// Joined errors stand on lines of their own; kubelet's Events have one.
	msg := strings.ReplaceAll(err.Error(), "\n", "; ")
	return &wire.Response{Error: &wire.Error{Code: errorCode(err), Msg: msg}}
}

// errorCode is the CNI error code for an error. What waiting helps comes first: an
// error may be several, when undoing failed too.
func errorCode(err error) uint {
	ours, delegates := (*wire.Error)(nil), (*types.Error)(nil)
	switch {
	case errors.Is(err, attach.ErrTryAgain),
		errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, context.Canceled):
		return wire.CodeTryAgain
	case errors.As(err, &ours):
		return ours.Code
	case errors.Is(err, attach.ErrInvalidRequest):
		return wire.CodeEnv
	// A delegate's other codes are about its own input, which we wrote.
	case errors.As(err, &delegates) && delegates.Code == types.ErrTryAgainLater:
		return wire.CodeTryAgain
	}
	return wire.CodeFailed
}

// convertResult writes a result in a version of CNI. Versions before 1.1.0 know fewer
// keys of interfaces and routes than the types, which write them all the same.
func convertResult(result *types100.Result, cniVersion string) (json.RawMessage, error) {
	if cniVersion != types100.ImplementedSpecVersion {
		result = withoutCNI110Fields(result)
	}
	converted, err := result.GetAsVersion(cniVersion)
	if err != nil {
		return nil, fmt.Errorf("convert result to cniVersion %s: %w", cniVersion, err)
	}
	doc, err := json.Marshal(converted)
	if err != nil {
		return nil, fmt.Errorf("encode result: %w", err)
	}
	return doc, nil
}

// withoutCNI110Fields copies a result without what 1.1.0 has added.
func withoutCNI110Fields(in *types100.Result) *types100.Result {
	out := &types100.Result{CNIVersion: in.CNIVersion, IPs: in.IPs, DNS: in.DNS}
	for _, i := range in.Interfaces {
		out.Interfaces = append(out.Interfaces, &types100.Interface{Name: i.Name, Mac: i.Mac, Sandbox: i.Sandbox})
	}
	for _, r := range in.Routes {
		out.Routes = append(out.Routes, &types.Route{Dst: r.Dst, GW: r.GW})
	}
	return out
}
