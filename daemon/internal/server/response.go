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

// errorResponse returns the response to a failed request. The message starts with the reason of the
// Event on the Pod, if it has one: kubelet repeats the message in its own Event.
func errorResponse(err error) *wire.Response {
	// Joined errors are on separate lines, and kubelet's Events have one line.
	msg := strings.ReplaceAll(err.Error(), "\n", "; ")
	if reported := (*attach.PodError)(nil); errors.As(err, &reported) {
		msg = reported.Reason + ": " + msg
	}
	return &wire.Response{Error: &wire.Error{Code: errorCode(err), Msg: msg}}
}

// errorCode returns the CNI error code of an error. ErrTryAgain comes first: an error of an ADD may be
// joined with that of its roll-back.
func errorCode(err error) uint {
	own, delegate := (*wire.Error)(nil), (*types.Error)(nil)
	switch {
	case errors.Is(err, attach.ErrTryAgain),
		errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, context.Canceled):
		return wire.CodeTryAgain
	case errors.As(err, &own):
		return own.Code
	case errors.Is(err, attach.ErrInvalidRequest):
		return wire.CodeEnv
	// A delegate's other codes concern its own input, which the runtime does not know.
	case errors.As(err, &delegate) && delegate.Code == types.ErrTryAgainLater:
		return wire.CodeTryAgain
	}
	return wire.CodeFailed
}

// convertResult encodes a result in a version of CNI. Versions before 1.1.0 have fewer keys of
// interfaces and routes, which the CNI library would encode nevertheless.
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

// withoutCNI110Fields returns a copy of a result without the keys that 1.1.0 has added.
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
