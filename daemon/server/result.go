// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// convert writes a result in a version of CNI. Versions before 1.1.0 know fewer
// keys of interfaces and routes than the types, which write them all the same.
func convert(result *types100.Result, cniVersion string) (json.RawMessage, error) {
	if cniVersion != types100.ImplementedSpecVersion {
		result = before110(result)
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

// before110 copies a result without what 1.1.0 has added.
func before110(in *types100.Result) *types100.Result {
	out := &types100.Result{CNIVersion: in.CNIVersion, IPs: in.IPs, DNS: in.DNS}
	for _, i := range in.Interfaces {
		out.Interfaces = append(out.Interfaces, &types100.Interface{Name: i.Name, Mac: i.Mac, Sandbox: i.Sandbox})
	}
	for _, r := range in.Routes {
		out.Routes = append(out.Routes, &types.Route{Dst: r.Dst, GW: r.GW})
	}
	return out
}
