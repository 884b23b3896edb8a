// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/patchbay-cni/patchbay/controller/ranges"
	"github.com/patchbay-cni/patchbay/webhook"
)

// addAdmission has every replica answer the API server, whoever leads, unless the flag
// is empty. What it returns says why this replica does not answer yet.
func addAdmission(ctx context.Context, m manager.Manager, o *options, used *ranges.Watcher) (ready func() error, err error) {
	if o.webhook == "" {
		return func() error { return nil }, nil
	}
	host, port, err := splitAddress(o.webhook)
	if err != nil {
		return nil, err
	}
	ready, err = webhook.Register(ctx, m, webhook.Options{
		Namespace: o.namespace, Host: host, Port: port, NamingScheme: o.namingScheme, Ranges: used,
	})
	if err != nil {
		return nil, fmt.Errorf("set up admission: %w", err)
	}
	return ready, nil
}

// splitAddress reads the flag. Port 0 would be another one in each replica, and the
// Service has one.
func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("flag --webhook-address: %w", err)
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil || number == 0 {
		return "", 0, fmt.Errorf("flag --webhook-address: port is %q, want 1 to 65535", text)
	}
	return host, int(number), nil
}
