// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// deployment is what examples/demo makes.
const deployment = "deployment/hello"

// Lab is what the demo needs of a lab.
type Lab interface {
	// Kubectl runs kubectl and returns its standard output. It may be called concurrently.
	Kubectl(ctx context.Context, args ...string) (string, error)
}

// Run applies the manifests in the folder examples, waits until all Pods have all
// interfaces, prints them as a table, and pings. An unanswered ping is an error.
func Run(ctx context.Context, lab Lab, examples string, out io.Writer) error {
	if _, err := lab.Kubectl(ctx, "apply", "--kustomize", examples); err != nil {
		return err
	}
	if _, err := lab.Kubectl(ctx, "rollout", "status", deployment, "--timeout=240s"); err != nil {
		return err
	}
	endpoints, err := awaitEndpoints(ctx, lab)
	if err != nil {
		return err
	}
	if err := printTable(out, endpoints); err != nil {
		return err
	}
	return pingAll(ctx, lab, routes(endpoints), out)
}

// awaitEndpoints waits for the DanmEps, which the node daemons create in the background.
func awaitEndpoints(ctx context.Context, lab Lab) ([]v1.DanmEp, error) {
	const (
		patience = 30 * time.Second
		pause    = 500 * time.Millisecond
	)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		pods, err := list[podList](ctx, lab, "pods")
		if err != nil {
			return nil, err
		}
		endpoints, err := list[v1.DanmEpList](ctx, lab, "danmeps")
		if err != nil {
			return nil, err
		}
		lacking := missingEndpoints(pods, endpoints.Items)
		if len(lacking) == 0 {
			return endpoints.Items, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for DanmEps of %v: %w", lacking, ctx.Err())
		}
	}
}

// list gets the demo's objects of one resource.
func list[T any](ctx context.Context, lab Lab, resource string) (T, error) {
	var all T
	out, err := lab.Kubectl(ctx, "get", resource, "--selector", "app=hello", "--output", "json")
	if err != nil {
		return all, err
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return all, fmt.Errorf("decode %s: %w", resource, err)
	}
	return all, nil
}
