// SPDX-License-Identifier: Apache-2.0

package admissiontest

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/source"
)

// Await polls at awaitInterval, until awaitTimeout.
const (
	awaitTimeout  = 3 * time.Minute
	awaitInterval = 20 * time.Millisecond
)

// webhookTimeoutSeconds is the timeoutSeconds of the webhooks that Serve installs. It is the
// maximum, so that tests of the answers do not fail on a busy machine.
const webhookTimeoutSeconds = 30

// Install creates the webhook configurations of deployments/ with the URL of a local port in place
// of the Service.
func Install(ctx context.Context, env *apitest.Env, port int) error {
	return install(ctx, env, port, 0)
}

// install is Install with another timeoutSeconds, unless it is 0.
func install(ctx context.Context, env *apitest.Env, port int, seconds int64) error {
	folder, err := source.Path("deployments", "webhooks")
	if err != nil {
		return err
	}
	objects, err := apitest.ReadManifests(folder)
	if err != nil {
		return err
	}
	for _, u := range objects {
		if !strings.HasSuffix(u.GetKind(), "WebhookConfiguration") {
			continue
		}
		if err := useLocalURL(u, port, seconds); err != nil {
			return err
		}
		if err := env.Client.Create(ctx, u); err != nil {
			return fmt.Errorf("install %s: %w", u.GetKind(), err)
		}
	}
	return nil
}

// useLocalURL makes the webhooks of a configuration use the port.
func useLocalURL(u *unstructured.Unstructured, port int, seconds int64) error {
	hooks, _, err := unstructured.NestedSlice(u.Object, "webhooks")
	if err != nil {
		return fmt.Errorf("read %s: %w", u.GetKind(), err)
	}
	for i := range hooks {
		if hook, ok := hooks[i].(map[string]any); ok {
			hook["clientConfig"] = map[string]any{"url": fmt.Sprintf("https://127.0.0.1:%d", port)}
			if seconds > 0 {
				hook["timeoutSeconds"] = seconds
			}
		}
	}
	return unstructured.SetNestedSlice(u.Object, hooks, "webhooks")
}

// Await waits until the API server calls the webhooks of both configurations and gets answers.
func Await(ctx context.Context, env *apitest.Env) error {
	ctx, cancel := context.WithTimeout(ctx, awaitTimeout)
	defer cancel()
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "probe"}
	network := &v1.TenantNetwork{ObjectMeta: meta, Spec: v1.NetworkSpec{NetworkID: "x", Options: v1.NetworkOptions{VLAN: 5}}}
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	service.Annotations = map[string]string{"danm.io/network": "x"}
	var last error
	for _, probe := range []client.Object{network, service} {
		err := wait.PollUntilContextCancel(ctx, awaitInterval, true, func(ctx context.Context) (bool, error) {
			copied, ok := probe.DeepCopyObject().(client.Object)
			if !ok {
				return false, fmt.Errorf("copy of %T must be a client.Object", probe)
			}
			last = env.Client.Create(ctx, copied, client.DryRunAll)
			return apierrors.IsInvalid(last) && strings.Contains(last.Error(), "admission webhook"), nil
		})
		if err != nil {
			return fmt.Errorf("await admission: %w (last: %w)", err, last)
		}
	}
	return nil
}
