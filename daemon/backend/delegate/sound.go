// SPDX-License-Identifier: Apache-2.0

package delegate

import (
	"context"
	"encoding/json"
	"fmt"

	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// addExecutor refuses results that the CNI library would not survive converting:
// it follows the pointers that a null in a list becomes.
type addExecutor struct{ *executor }

// ExecPlugin is executor's, with a look at the result.
func (e addExecutor) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	out, err := e.executor.ExecPlugin(ctx, path, stdin, environ)
	if err == nil {
		err = convertible(out)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// convertible checks a result in whatever version it is.
func convertible(out []byte) error {
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

// sound checks what is left to check in a result in our own version: runtimes
// take the indexes as they are.
func sound(r *types100.Result) error {
	for i, ip := range r.IPs {
		if ip.Interface != nil && (*ip.Interface < 0 || *ip.Interface >= len(r.Interfaces)) {
			return fmt.Errorf("result: ips[%d] is of interface %d of %d", i, *ip.Interface, len(r.Interfaces))
		}
		if len(ip.Address.IP) == 0 {
			return fmt.Errorf("result: ips[%d] has no address", i)
		}
	}
	return nil
}
