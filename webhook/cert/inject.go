// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// inject has the bundle trusted by all webhook configurations. One that is not there
// is an error, told again and again: it may be installed later.
func (k *Keeper) inject(ctx context.Context, bundle []byte) error {
	var failed []error
	for _, name := range k.cfg.Mutating {
		var c admissionv1.MutatingWebhookConfiguration
		failed = append(failed, k.update(ctx, name, &c, func() bool {
			changed := false
			for i := range c.Webhooks {
				changed = trust(&c.Webhooks[i].ClientConfig, bundle) || changed
			}
			return changed
		}))
	}
	for _, name := range k.cfg.Validating {
		var c admissionv1.ValidatingWebhookConfiguration
		failed = append(failed, k.update(ctx, name, &c, func() bool {
			changed := false
			for i := range c.Webhooks {
				changed = trust(&c.Webhooks[i].ClientConfig, bundle) || changed
			}
			return changed
		}))
	}
	return errors.Join(failed...)
}

// update reads a configuration and writes it when change says so. A conflict is an
// error: the keeper looks again soon.
func (k *Keeper) update(ctx context.Context, name string, obj client.Object, change func() bool) error {
	if err := k.cfg.Client.Get(ctx, client.ObjectKey{Name: name}, obj); err != nil {
		return fmt.Errorf("read webhook configuration %s: %w", name, err)
	}
	if !change() {
		return nil
	}
	if err := k.cfg.Client.Update(ctx, obj); err != nil {
		return fmt.Errorf("put the certificate authority into webhook configuration %s: %w", name, err)
	}
	return nil
}

func trust(c *admissionv1.WebhookClientConfig, bundle []byte) bool {
	if bytes.Equal(c.CABundle, bundle) {
		return false
	}
	c.CABundle = bundle
	return true
}
