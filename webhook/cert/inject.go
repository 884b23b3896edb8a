// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// inject has the authorities trusted by all webhook configurations. One that is not there
// is an error, told again and again: it may be installed later.
func (k *Keeper) inject(ctx context.Context, now chain) error {
	var failed []error
	token := now.path(k.cfg.Now())
	for _, name := range k.cfg.Mutating {
		var c admissionv1.MutatingWebhookConfiguration
		failed = append(failed, k.update(ctx, name, &c, func() bool {
			changed := false
			for i := range c.Webhooks {
				changed = now.trust(c.Webhooks[i].Name, token, &c.Webhooks[i].ClientConfig) || changed
			}
			return changed
		}))
	}
	for _, name := range k.cfg.Validating {
		var c admissionv1.ValidatingWebhookConfiguration
		failed = append(failed, k.update(ctx, name, &c, func() bool {
			changed := false
			for i := range c.Webhooks {
				changed = now.trust(c.Webhooks[i].Name, token, &c.Webhooks[i].ClientConfig) || changed
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

// trust writes the bundle and the token's path into the webhook of that name, and
// reports whether that is a change. The manifests have neither: who applies them again
// and again takes nothing away.
func (c chain) trust(name, token string, to *admissionv1.WebhookClientConfig) bool {
	changed := !bytes.Equal(to.CABundle, c.bundle())
	to.CABundle = c.bundle()
	path := "/" + name + "/" + token
	switch {
	case to.Service != nil:
		changed = changed || to.Service.Path == nil || path != *to.Service.Path
		to.Service.Path = &path
	case to.URL != nil:
		if u, err := url.Parse(*to.URL); err == nil {
			u.Path = path
			changed = changed || u.String() != *to.URL
			text := u.String()
			to.URL = &text
		}
	}
	return changed
}
