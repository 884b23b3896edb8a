// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package hostile

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/test/apitest"
)

// writeMethod changes an object from one state to another, and leaves the answer in the latter.
type writeMethod func(ctx context.Context, c client.Client, from, to *unstructured.Unstructured) error

// writeMethods are those that the API has.
func writeMethods() map[string]writeMethod {
	ways := map[string]writeMethod{
		"Update": func(ctx context.Context, c client.Client, _, to *unstructured.Unstructured) error {
			return c.Update(ctx, to)
		},
		"Unconditional": func(ctx context.Context, c client.Client, _, to *unstructured.Unstructured) error {
			to.SetResourceVersion("")
			return c.Update(ctx, to)
		},
		"Apply": func(ctx context.Context, c client.Client, _, to *unstructured.Unstructured) error {
			toApplyConfiguration(to)
			return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(to), client.FieldOwner("mallory"))
		},
		"ApplyForced": func(ctx context.Context, c client.Client, _, to *unstructured.Unstructured) error {
			toApplyConfiguration(to)
			return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(to), client.FieldOwner("mallory"), client.ForceOwnership)
		},
		"StatusUpdate": func(ctx context.Context, c client.Client, _, to *unstructured.Unstructured) error {
			return c.Status().Update(ctx, to)
		},
		"StatusApply": func(ctx context.Context, c client.Client, _, to *unstructured.Unstructured) error {
			toApplyConfiguration(to)
			return c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(to), client.FieldOwner("mallory"), client.ForceOwnership)
		},
	}
	for _, kind := range []types.PatchType{types.MergePatchType, types.JSONPatchType, types.StrategicMergePatchType} {
		patch := func(from, to *unstructured.Unstructured) (client.Patch, error) {
			if kind == types.JSONPatchType {
				return jsonPatch(from, to)
			}
			data, err := client.MergeFrom(from).Data(to)
			return client.RawPatch(kind, data), err
		}
		ways["Patch "+string(kind)] = func(ctx context.Context, c client.Client, from, to *unstructured.Unstructured) error {
			p, err := patch(from, to)
			if err != nil {
				return err
			}
			return c.Patch(ctx, to, p)
		}
		ways["Patch status "+string(kind)] = func(ctx context.Context, c client.Client, from, to *unstructured.Unstructured) error {
			p, err := patch(from, to)
			if err != nil {
				return err
			}
			return c.Status().Patch(ctx, to, p)
		}
	}
	return ways
}

// toApplyConfiguration leaves what server-side apply takes.
func toApplyConfiguration(o *unstructured.Unstructured) {
	for _, field := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
}

// jsonPatch replaces metadata, and what else is different.
func jsonPatch(from, to *unstructured.Unstructured) (client.Patch, error) {
	ops := []map[string]any{}
	for field, value := range to.Object {
		if field == "metadata" || !reflect.DeepEqual(value, from.Object[field]) {
			ops = append(ops, map[string]any{"op": "add", "path": "/" + field, "value": value})
		}
	}
	data, err := json.Marshal(ops)
	return client.RawPatch(types.JSONPatchType, data), err
}

// change is what an attacker wants an object to be.
type change struct {
	reason string
	apply  func(o *unstructured.Unstructured)
}

// setField changes one field, and makes the maps on the way to it.
func setField(value any, path ...string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) { _ = unstructured.SetNestedField(o.Object, value, path...) }
}

// metadataChanges of metadata, which all objects have.
func metadataChanges() map[string]change {
	return map[string]change{
		"Orphaned": {"The garbage collector would delete it at once.", func(o *unstructured.Unstructured) {
			o.SetFinalizers(nil)
			o.SetOwnerReferences(missingOwner())
		}},
		"Owned":     {"It would once its finalizers are gone.", func(o *unstructured.Unstructured) { o.SetOwnerReferences(missingOwner()) }},
		"Released":  {"It may go while it is in use.", func(o *unstructured.Unstructured) { o.SetFinalizers(nil) }},
		"Kept":      {"It never goes.", func(o *unstructured.Unstructured) { o.SetFinalizers(append(o.GetFinalizers(), "example.com/never")) }},
		"Labelled":  {"Others select by labels.", setField("evil", "metadata", "labels", "team")},
		"Unmarked":  {"What others say of it.", func(o *unstructured.Unstructured) { o.SetLabels(nil); o.SetAnnotations(nil) }},
		"Annotated": {"The controller would act.", setField("all", "metadata", "annotations", "danm.io/ipam-skip")},
		"Disowned": {"Who applied it applies in vain.", func(o *unstructured.Unstructured) {
			o.Object["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{}} //nolint:forcetypeassert // every object has metadata
		}},
	}
}

// target is an object that is not the attacker's.
type target struct {
	object *unstructured.Unstructured
	// extraChanges are changes of this kind of object, beside those of metadata.
	extraChanges map[string]change
}

// protectedFields is of an object what nobody else may change. Whose apply set which field decides
// whether that person's next one takes it away.
func protectedFields(o *unstructured.Unstructured) map[string]any {
	all := o.DeepCopy().Object
	for _, field := range []string{"resourceVersion", "managedFields", "generation"} {
		unstructured.RemoveNestedField(all, "metadata", field)
	}
	var appliers []any
	for _, m := range o.GetManagedFields() {
		if m.Operation == metav1.ManagedFieldsOperationApply {
			appliers = append(appliers, m.Manager+" "+m.FieldsV1.GetRawString())
		}
	}
	all["appliers"] = appliers
	return all
}

// attack tries to change and delete an object in every way, for real and as a dry run. The
// API server may accept what changes nothing.
func (x target) attack(t *testing.T, env *apitest.Env, attacker client.Client) {
	t.Helper()
	from := x.object.DeepCopy()
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(from), from); err != nil {
		t.Fatal(err)
	}
	all := metadataChanges()
	maps.Copy(all, x.extraChanges)
	dry := client.NewDryRunClient(attacker)
	for what, change := range all {
		x.change(t, env, attacker, what, change)
	}
	x.change(t, env, dry, "as a dry run", all["Orphaned"])
	for _, sub := range []string{"scale", "finalizers"} {
		if err := attacker.SubResource(sub).Patch(t.Context(), from.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`))); err == nil {
			t.Errorf("patch %s: accepted", sub)
		}
	}
	x.delete(t, dry, "dry run")
	x.delete(t, attacker, "write")
	now := from.DeepCopy()
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(from), now); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(protectedFields(now), protectedFields(from)) {
		t.Errorf("after the attacks: got %v\nwant %v", protectedFields(now), protectedFields(from))
	}
}

// change tries to change the object in every way. A write that changes nothing is accepted,
// and counts as one.
func (x target) change(t *testing.T, env *apitest.Env, c client.Client, what string, change change) {
	t.Helper()
	for how, way := range writeMethods() {
		from := x.object.DeepCopy()
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(from), from); err != nil {
			t.Fatal(err)
		}
		to := from.DeepCopy()
		change.apply(to)
		err := way(t.Context(), c, from, to)
		if apierrors.IsConflict(err) && how != "Apply" || apierrors.IsTooManyRequests(err) {
			t.Errorf("%s, %s: %v, so the attack says nothing", what, how, err)
		}
		if err == nil && !reflect.DeepEqual(protectedFields(to), protectedFields(from)) {
			t.Errorf("%s, %s: accepted\n%s\ngot %v\nwant %v", what, how, change.reason, protectedFields(to), protectedFields(from))
		}
	}
}

// delete tries each way to delete the object; all are refused.
func (x target) delete(t *testing.T, c client.Client, mode string) {
	t.Helper()
	uid := x.object.GetUID()
	for how, opts := range map[string][]client.DeleteOption{
		"Plain":      nil,
		"Now":        {client.GracePeriodSeconds(0)},
		"This":       {client.Preconditions{UID: &uid}},
		"Background": {client.PropagationPolicy(metav1.DeletePropagationBackground)},
		"Foreground": {client.PropagationPolicy(metav1.DeletePropagationForeground)},
		"Orphan":     {client.PropagationPolicy(metav1.DeletePropagationOrphan)},
	} {
		if err := c.Delete(t.Context(), x.object.DeepCopy(), opts...); err == nil {
			t.Errorf("delete, %s, %s: accepted", how, mode)
		}
	}
	one := client.MatchingFields{"metadata.name": x.object.GetName()}
	if err := c.DeleteAllOf(t.Context(), x.object.DeepCopy(), client.InNamespace(x.object.GetNamespace()), one); err == nil {
		t.Errorf("deletecollection, %s: accepted", mode)
	}
}
