// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/text"
)

// newRebuild is the verb `ipam rebuild`.
func newRebuild(f *factory) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "rebuild KIND/NAME",
		Short: "Rebuild the address bitmap of a network",
		Long: "Rebuilds the address bitmap of a network from the nodes' entries and the DanmEps, and prints the\n" +
			"corrections. Running Pods and concurrent claims are not affected.",
		Example:           "  kubectl patchbay ipam rebuild clusternetwork/storage\n  kubectl patchbay ipam rebuild danmnet/lan -n team-a",
		Args:              exactlyOneArgument("kind and name of one network, such as clusternetwork/storage"),
		ValidArgsFunction: firstArgument(f.networkArguments),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, namespace, err := f.networkClient()
			if err != nil {
				return err
			}
			ref, err := parseNetworkRef(args[0], namespace)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return rebuild(ctx, c, ref, f.Out)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "the time to wait for patchbay-controller")
	return cmd
}

// parseNetworkRef reads KIND/NAME.
func parseNetworkRef(argument, namespace string) (network.Ref, error) {
	word, name, ok := strings.Cut(argument, "/")
	if !ok || name == "" || strings.Contains(name, "/") {
		return network.Ref{}, fmt.Errorf("network %q: must be KIND/NAME, such as clusternetwork/storage", argument)
	}
	kind, err := parseKind(word)
	if err != nil {
		return network.Ref{}, err
	}
	ref := network.Ref{Kind: kind, Namespace: namespace, Name: name}
	if kind == v1.KindClusterNetwork {
		ref.Namespace = ""
	}
	return ref, nil
}

// parseKind returns the network kind of a kind, resource or short name, with or without the API
// group.
func parseKind(word string) (string, error) {
	word, _, _ = strings.Cut(strings.ToLower(word), ".")
	switch word {
	case "clusternetwork", "clusternetworks", "cn", "cnet":
		return v1.KindClusterNetwork, nil
	case "tenantnetwork", "tenantnetworks", "tn", "tnet":
		return v1.KindTenantNetwork, nil
	case "danmnet", "danmnets", "dn", "dnet":
		return v1.KindDanmNet, nil
	}
	return "", fmt.Errorf("kind %q: must be a kind of network: clusternetwork, tenantnetwork or danmnet", word)
}

// rebuild requests a rebuild, waits for it, and prints the corrections.
func rebuild(ctx context.Context, c client.Client, ref network.Ref, out io.Writer) error {
	obj := kube.PartialMetadata(ref.Kind)
	if err := c.Get(ctx, kube.ObjectKey(ref), obj); err != nil {
		return fmt.Errorf("get %s: %w", ref, err)
	}
	before, err := countEvents(ctx, c, obj)
	if err != nil {
		return err
	}
	value := time.Now().UTC().Format(time.RFC3339Nano) // differs from the values of earlier requests
	if err := annotate(ctx, c, obj, v1.RebuildAnnotation, value); err != nil {
		return err
	}
	if err := poll(ctx, func() (bool, error) { return rebuildDone(ctx, c, ref, value) }); err != nil {
		return rebuildError(ctx, c, obj, before, err)
	}
	result := "the bitmap was rebuilt; `kubectl describe` shows the Event with the corrections"
	if message := awaitEvent(ctx, c, obj, before, v1.ReasonBitmapRebuilt); message != "" {
		result = message
	}
	_, err = fmt.Fprintf(out, "%s: %s\n", ref, result)
	return err
}

// eventCounts are the counts of Events by UID.
type eventCounts map[types.UID]int32

// countEvents returns the counts of the Events on an object.
func countEvents(ctx context.Context, c client.Client, obj *metav1.PartialObjectMetadata) (eventCounts, error) {
	list, err := listEvents(ctx, c, obj)
	if err != nil {
		return nil, err
	}
	counts := eventCounts{}
	for i := range list {
		counts[list[i].UID] = list[i].Count
	}
	return counts, nil
}

// awaitEvent waits for an Event with the reason that is new or has a higher count than before, and
// returns its message. It returns an empty string if there is none within eventTimeout.
func awaitEvent(ctx context.Context, c client.Client, obj *metav1.PartialObjectMetadata, before eventCounts, reason string) (message string) {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	_ = poll(ctx, func() (bool, error) {
		list, err := listEvents(ctx, c, obj)
		for i := range list {
			e := &list[i]
			if count, ok := before[e.UID]; e.Reason == reason && (!ok || count != e.Count) {
				message = text.OneLine(e.Message) // nodes and tenants may write Events
				return true, nil
			}
		}
		return false, err
	})
	return message
}

// eventTimeout bounds the wait for an Event. The controller writes Events asynchronously: they may
// be late, or lost.
const eventTimeout = 3 * time.Second

// listEvents lists the Events on an object. Events on a cluster-scoped object are in the namespace
// default.
func listEvents(ctx context.Context, c client.Client, obj *metav1.PartialObjectMetadata) ([]corev1.Event, error) {
	namespace := obj.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	list := &corev1.EventList{}
	if err := c.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{"involvedObject.uid": string(obj.UID)}); err != nil {
		return nil, fmt.Errorf("list Events in %s: %w", namespace, err)
	}
	return list.Items, nil
}

// rebuildDone reports whether the controller has removed the request with that value.
func rebuildDone(ctx context.Context, c client.Client, ref network.Ref, value string) (bool, error) {
	obj := kube.PartialMetadata(ref.Kind)
	if err := c.Get(ctx, kube.ObjectKey(ref), obj); err != nil {
		return false, fmt.Errorf("get %s: %w", ref, err)
	}
	return obj.Annotations[v1.RebuildAnnotation] != value, nil
}

// rebuildError adds to a timeout the reason for which the rebuild is not done.
func rebuildError(ctx context.Context, c client.Client, obj *metav1.PartialObjectMetadata, before eventCounts, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventTimeout)
	defer cancel()
	if message := awaitEvent(ctx, c, obj, before, v1.ReasonBitmapRebuildFailed); message != "" {
		return fmt.Errorf("the rebuild failed; patchbay-controller retries it: %s", message)
	}
	return errors.New("patchbay-controller has not answered in time: check that it runs, and that the network is not in recovery " +
		"(condition Recovering). The request stays, as the annotation " + v1.RebuildAnnotation)
}

// annotate sets an annotation of an object that was read before. It fails if another object has the name now.
func annotate(ctx context.Context, c client.Client, obj *metav1.PartialObjectMetadata, name, value string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": obj.UID, "annotations": map[string]string{name: value},
	}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if err := c.Patch(ctx, obj.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("annotate %s %s: %w", obj.Kind, obj.Name, err)
	}
	return nil
}

// poll calls done every pollInterval until it returns true or an error, or ctx ends.
func poll(ctx context.Context, done func() (bool, error)) error {
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

// pollInterval is the time between two calls.
const pollInterval = 200 * time.Millisecond
