// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package works_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// settings is a ConfigMap of the cluster's own people.
const settings = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: %s}, data: {key: %s}}"

// neighbours makes what is in the cluster beside the hub's objects: monitoring is the
// cluster's own, team is open to the hub. In both are a ServiceAccount and a ConfigMap.
func (b *bench) neighbours(t *testing.T) {
	t.Helper()
	b.allow(t, "monitoring", "")
	b.allow(t, "team", v1alpha1.AccessCreate)
	for _, ns := range []string{"monitoring", "team"} {
		for _, o := range []client.Object{
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "deployer"}},
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "settings"}, Data: map[string]string{"key": "theirs"}},
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "password"}},
		} {
			if err := b.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A user of the hub asks for what the cluster's admin has not allowed. Each is refused with
// object, field and remedy, and changes nothing.
func TestHubUserIsNoRoot(t *testing.T) {
	b := start(t)
	b.neighbours(t)
	const pod = "{automountServiceAccountToken: false, containers: [{name: c, image: i}], %s}"
	force := func(s *v1alpha1.WorkSpec) { s.Apply.Conflict = v1alpha1.ConflictForce }
	cases := map[string]struct {
		reason         string
		change         func(*v1alpha1.WorkSpec)
		resource, text string
		want           string // part of the message
		made           string // kind of what must not be there; empty: it is not asked for
	}{
		"Namespace":      {"The agent did not make it.", nil, "secrets", "{apiVersion: v1, kind: Secret, metadata: {name: new, namespace: monitoring}}", "kubectl label namespace monitoring placement.patchbay.io/access=create", "Secret"},
		"ForceNamespace": {"Nor by force.", force, "configmaps", fmt.Sprintf(settings, "monitoring", "ours"), "metadata.namespace", ""},
		"KubeSystem":     {"Kubernetes' own.", force, "configmaps", "{apiVersion: v1, kind: ConfigMap, metadata: {name: new, namespace: kube-system}}", "kube-system", "ConfigMap"},
		"Copies":         {"The agent's copies.", force, "secrets", "{apiVersion: v1, kind: Secret, metadata: {name: new, namespace: patchbay-agent-secrets}}", "patchbay-agent-secrets", "Secret"},
		"Patchbay":       {"The node daemon's.", force, "secrets", "{apiVersion: v1, kind: Secret, metadata: {name: new, namespace: patchbay-system}}", "patchbay-system", "Secret"},
		"Force":          {"Somebody else's in a namespace that is open.", force, "configmaps", fmt.Sprintf(settings, "team", "ours"), "apply.conflict Force: it was there before and is not the agent's, so the cluster's admin must allow", ""},
		"Adopt":          {"Nor is it adopted.", func(s *v1alpha1.WorkSpec) { s.Apply.Conflict = v1alpha1.ConflictAdopt }, "configmaps", fmt.Sprintf(settings, "team", "theirs"), "apply.conflict Adopt", ""},
		"Account":        {"Pods with the rights of what runs there.", nil, "deployments", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: new, namespace: team}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: " + fmt.Sprintf(pod, "serviceAccountName: deployer") + "}}}", "spec.template.spec.serviceAccountName: ServiceAccount deployer must come from the hub", "Deployment"},
		"Deprecated":     {"By the field's old name.", nil, "pods", "{apiVersion: v1, kind: Pod, metadata: {name: new, namespace: team}, spec: " + fmt.Sprintf(pod, "serviceAccount: deployer") + "}", "spec.serviceAccount: ServiceAccount deployer", "Pod"},
		"CronJob":        {"At a later time.", nil, "cronjobs", "{apiVersion: batch/v1, kind: CronJob, metadata: {name: new, namespace: team}, spec: {schedule: '* * * * *', jobTemplate: {spec: {template: {spec: " + fmt.Sprintf(pod, "restartPolicy: Never, serviceAccountName: deployer") + "}}}}}", "spec.jobTemplate.spec.template.spec.serviceAccountName", "CronJob"},
		"Token":          {"The account's token in a Secret of the user's.", nil, "secrets", "{apiVersion: v1, kind: Secret, metadata: {name: new, namespace: team, annotations: {kubernetes.io/service-account.name: deployer}}, type: kubernetes.io/service-account-token}", "type: a Secret from the hub must not hold a ServiceAccount's token", "Secret"},
		"Rights":         {"Rights.", nil, "rolebindings", "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: new, namespace: team}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}}", "cluster's own admin", ""},
		"Volume":         {"Any path of a node.", nil, "persistentvolumes", "{apiVersion: v1, kind: PersistentVolume, metadata: {name: new}}", "no kind of ordinary workloads", ""},
		"Slices":         {"A Service would lead to any address.", nil, "endpointslices", "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: new, namespace: team}, addressType: IPv4, endpoints: []}", "no kind of ordinary workloads", "EndpointSlice"},
		"Endpoint":       {"It would have a Pod's address.", nil, "danmeps", "{apiVersion: danm.io/v1, kind: DanmEp, metadata: {name: new, namespace: team}, spec: {NetworkName: n, EndpointID: e, Host: h, Pod: p, CID: c, Interface: {Name: eth1}}}", "no kind of ordinary workloads", "DanmEp"},
		"Ranges":         {"VLANs of the cluster's NICs.", nil, "tenantconfigs", "{apiVersion: danm.io/v1, kind: TenantConfig, metadata: {name: new}, hostDevices: [{name: ens3}]}", "no kind of ordinary workloads", "TenantConfig"},
		"Open":           {"A namespace with the label that opens it.", force, "namespaces", "{apiVersion: v1, kind: Namespace, metadata: {name: monitoring, labels: {" + v1alpha1.AccessLabel + ": adopt}}}", "cluster's own admin", ""},
		"Init":           {"The same by a container that ends before the others start.", nil, "pods", "{apiVersion: v1, kind: Pod, metadata: {name: init, namespace: fresh}, spec: " + fmt.Sprintf(pod, "initContainers: [{name: i, image: i, securityContext: {privileged: true}}]") + "}", `violates PodSecurity "baseline:latest"`, "Pod"},
		"Privileged":     {"A namespace that the agent makes enforces the baseline.", nil, "pods", "{apiVersion: v1, kind: Pod, metadata: {name: new, namespace: fresh}, spec: " + fmt.Sprintf(pod, "hostNetwork: true, hostPID: true") + "}", `violates PodSecurity "baseline:latest"`, "Pod"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := manifest(t, tc.resource, tc.text)
			w := b.work(t, strings.ToLower(name), tc.change, m)
			b.awaitWork(t, w, tc.reason, failed(v1alpha1.ReasonRefused, tc.want))
			var meta metav1.PartialObjectMetadata
			if err := json.Unmarshal(m.Object.Raw, &meta); err != nil {
				t.Fatal(err)
			}
			if tc.made != "" && b.object(t, meta.APIVersion, tc.made, meta.Namespace, meta.Name) != nil {
				t.Errorf("%s\n%s %s/%s was made", tc.reason, tc.made, meta.Namespace, meta.Name)
			}
			for _, ns := range []string{"monitoring", "team"} {
				if got := field(b.object(t, "v1", "ConfigMap", ns, "settings"), "data", "key"); got != "theirs" {
					t.Errorf("%s\n%s: got %q, want what was there", tc.reason, ns, got)
				}
			}
		})
	}
}

// What the cluster's admin allows works, and what the hub says of its own objects does not
// decide how long they live, or what the hub may do.
func TestAdminAllows(t *testing.T) {
	b := start(t)
	b.neighbours(t)
	account := "{apiVersion: v1, kind: ServiceAccount, metadata: {name: %s, namespace: team}}"
	pod := "{apiVersion: v1, kind: Pod, metadata: {name: %[1]s, namespace: team}, spec: {serviceAccountName: %[1]s, automountServiceAccountToken: false, containers: [{name: c, image: i}]}}"
	label := func(t *testing.T, kind, name, access string) {
		t.Helper()
		o := b.object(t, "v1", kind, "team", name)
		o.SetLabels(map[string]string{v1alpha1.AccessLabel: access})
		if err := b.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	outer := t // the agent outlives the cases
	t.Run("PlacedAccount", func(t *testing.T) {
		w := b.work(t, "pod-first", nil, manifest(t, "pods", fmt.Sprintf(pod, "placed")))
		b.awaitWork(t, w, "the account is not there yet", failed(v1alpha1.ReasonProgressing, "spec.serviceAccountName: ServiceAccount placed must be here before"))
		b.awaitWork(t, b.work(t, "account", nil, manifest(t, "serviceaccounts", fmt.Sprintf(account, "placed"))), "the account", applied(1))
		b.awaitWork(t, w, "Pods that run as what the hub placed", applied(1))
	})
	t.Run("AllowedAccount", func(t *testing.T) {
		label(t, "ServiceAccount", "deployer", v1alpha1.AccessUse)
		b.awaitWork(t, b.work(t, "allowed", nil, manifest(t, "pods", fmt.Sprintf(pod, "deployer"))), "Pods that run as what the admin allows", applied(1))
	})
	t.Run("AllowedObject", func(t *testing.T) {
		label(t, "ConfigMap", "settings", v1alpha1.AccessAdopt)
		w := b.work(t, "one", func(s *v1alpha1.WorkSpec) { s.Apply.Conflict = v1alpha1.ConflictForce }, manifest(t, "configmaps", fmt.Sprintf(settings, "team", "ours")))
		b.awaitWork(t, w, "one object is taken over", applied(1))
		if o := b.object(t, "v1", "ConfigMap", "team", "settings"); field(o, "data", "key") != "ours" || o.GetLabels()[v1alpha1.AccessLabel] != v1alpha1.AccessAdopt {
			t.Errorf("got %v, want the hub's data, and the admin's label", o.Object)
		}
	})
	t.Run("ClusterScoped", func(t *testing.T) {
		network := "{apiVersion: danm.io/v1, kind: ClusterNetwork, metadata: {name: %s}, spec: {NetworkID: %[1]s, NetworkType: macvlan, Options: {host_device: ens3}}}"
		b.awaitWork(t, b.work(t, "network", nil, manifest(t, "clusternetworks", fmt.Sprintf(network, "placed"))), "a cluster-scoped object", applied(1))
		theirs := manifest(t, "clusternetworks", fmt.Sprintf(network, "theirs"))
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(theirs.Object.Raw); err != nil {
			t.Fatal(err)
		}
		if err := b.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		w := b.work(t, "theirs", func(s *v1alpha1.WorkSpec) { s.Apply.Conflict = v1alpha1.ConflictForce }, theirs)
		b.awaitWork(t, w, "one of the cluster's own", failed(v1alpha1.ReasonRefused, "apply.conflict Force"))
	})
	t.Run("Marks", func(t *testing.T) {
		w := b.work(t, "marks", nil, manifest(t, "configmaps", `{apiVersion: v1, kind: ConfigMap, metadata: {name: marks, namespace: fresh, `+
			`finalizers: [example.com/never], ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: gone, uid: "1"}], labels: {`+v1alpha1.AccessLabel+`: adopt}}}`))
		b.awaitWork(t, w, "applied", applied(1))
		o := b.object(t, "v1", "ConfigMap", "fresh", "marks")
		if o.GetFinalizers() != nil || o.GetOwnerReferences() != nil || o.GetLabels()[v1alpha1.AccessLabel] != "" {
			t.Errorf("got %v: owners, finalizers or access came from the hub", o.Object)
		}
	})
	t.Run("PodSecurity", func(t *testing.T) {
		enforced := func(want string) {
			t.Helper()
			if got := b.object(t, "v1", "Namespace", "", "fresh").GetLabels()["pod-security.kubernetes.io/enforce"]; got != want {
				t.Errorf("enforce: got %q, want %q", got, want)
			}
		}
		enforced("baseline")
		w := &v1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: clusterNamespace, Name: "marks"}}
		for _, level := range []v1alpha1.PodSecurityLevel{v1alpha1.PodSecurityRestricted, v1alpha1.PodSecurityPrivileged} {
			b.change(t, w, func(s *v1alpha1.WorkSpec) { s.PodSecurity = map[string]v1alpha1.PodSecurityLevel{"enforce": level} })
			b.awaitWork(t, w, "applied", applied(w.Spec.Revision))
			enforced("restricted") // it is tightened, and never loosened
		}
	})
	t.Run("Withdrawn", func(t *testing.T) {
		b.allow(t, "team", "")
		b.stop()
		b.run(outer) // nothing is known from before
		w := b.work(t, "late", nil, manifest(t, "configmaps", `{apiVersion: v1, kind: ConfigMap, metadata: {name: late, namespace: team}}`))
		b.awaitWork(t, w, "the admin took the label off", failed(v1alpha1.ReasonRefused, "metadata.namespace"))
	})
	t.Run("Unreadable", func(t *testing.T) { // the hub is not to take a claim for never made
		b.allow(t, "closed", v1alpha1.AccessCreate)
		w := b.work(t, "claim", nil, manifest(t, "persistentvolumeclaims", `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: closed}, `+
			`spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`))
		uid := b.awaitWork(t, w, "applied", applied(1)).Manifests[0].UID
		for _, record := range []bool{true, false} {
			b.stop()
			if record {
				b.allow(t, "closed", "")
				if err := b.Delete(t.Context(), b.object(t, rbacv1.SchemeGroupVersion.String(), "RoleBinding", "closed", "patchbay-agent")); err != nil {
					t.Fatal(err)
				}
			} else if err := b.Delete(t.Context(), &v1alpha1.AppliedWork{ObjectMeta: metav1.ObjectMeta{Name: w.Name}}); err != nil {
				t.Fatal(err)
			}
			b.change(t, w, func(s *v1alpha1.WorkSpec) { s.SourceGeneration++ })
			b.run(outer)
			s := b.awaitWork(t, w, "it may not be read", func(s v1alpha1.WorkStatus) bool {
				return s.Revision == w.Spec.Revision && failed(v1alpha1.ReasonRefused, "metadata.namespace")(s)
			})
			if uid == "" || s.Manifests[0].UID != uid {
				t.Errorf("with a record: %t: UID: got %q, want %q", record, s.Manifests[0].UID, uid)
			}
		}
	})
	t.Run("NamespaceGone", func(t *testing.T) {
		b.stop() // it would make the namespace again, before it is told to remove what was in it
		ns := b.object(t, "v1", "Namespace", "", "fresh")
		if err := b.Delete(t.Context(), ns); err != nil {
			t.Fatal(err)
		}
		b.finalize(t, "fresh")
		w := &v1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: clusterNamespace, Name: "marks"}}
		b.change(t, w, func(s *v1alpha1.WorkSpec) {
			s.Removal = &v1alpha1.Removal{Policy: v1alpha1.OnDeleteDelete, SourceUID: "source-1"}
		})
		b.run(outer)
		b.awaitWork(t, w, "what went with its namespace is removed", failed(v1alpha1.ReasonRemoved, ""))
	})
}

// finalize ends the deletion of a namespace, which a controller would do.
func (b *bench) finalize(t *testing.T, name string) {
	t.Helper()
	for _, kind := range []string{"ConfigMap", "RoleBinding"} {
		apiVersion := map[string]string{"ConfigMap": "v1", "RoleBinding": rbacv1.SchemeGroupVersion.String()}[kind]
		o := b.object(t, apiVersion, kind, name, map[string]string{"ConfigMap": "marks", "RoleBinding": "patchbay-agent"}[kind])
		if o == nil {
			continue
		}
		if err := b.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	ns := &corev1.Namespace{}
	if err := b.Get(t.Context(), client.ObjectKey{Name: name}, ns); err != nil {
		t.Fatal(err)
	}
	ns.Spec.Finalizers = nil
	if err := b.SubResource("finalize").Update(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
}

// With the agent's own token nobody gets further than the agent, under whatever name it was
// installed. Each attack is carried out with a client that has its rights.
func TestStolenAgentToken(t *testing.T) {
	b := start(t)
	b.neighbours(t)
	// The agent has made a namespace, and has its rights in both.
	b.awaitWork(t, b.work(t, "first", nil, manifest(t, "configmaps", `{apiVersion: v1, kind: ConfigMap, metadata: {name: first, namespace: fresh}}`)), "applied", applied(1))
	b.awaitWork(t, b.work(t, "second", nil, manifest(t, "configmaps", `{apiVersion: v1, kind: ConfigMap, metadata: {name: second, namespace: team}}`)), "applied", applied(1))
	b.stop()
	// Another installation of the same rights, by an overlay.
	for _, o := range []client.Object{
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "overlay"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "patchbay-agent"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "overlay", Name: "prod-agent"}}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "overlay"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "patchbay-agent-placeable"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "overlay", Name: "prod-agent"}}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "fresh", Name: "overlay"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "patchbay-agent-placeable"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "overlay", Name: "prod-agent"}}},
	} {
		if err := b.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for name, user := range map[string]string{"Installed": bed.AgentUser, "Overlay": "system:serviceaccount:overlay:prod-agent"} {
		t.Run(name, func(t *testing.T) { testStolenToken(t, b, user) })
	}
}

func testStolenToken(t *testing.T, b *bench, user string) {
	t.Helper()
	config := rest.CopyConfig(b.env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	thief, err := client.New(config, client.Options{Scheme: bed.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, parts := t.Context(), strings.Split(user, ":")
	self := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: parts[2], Name: parts[3]}
	bind := func(namespace, role string, subject rbacv1.Subject) func(...client.CreateOption) error {
		return func(opts ...client.CreateOption) error {
			return thief.Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "x-", Labels: map[string]string{v1alpha1.ManagedLabel: "true"}},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: []rbacv1.Subject{subject},
			}, opts...)
		}
	}
	namespace := func(labels map[string]string) func(...client.CreateOption) error {
		return func(opts ...client.CreateOption) error {
			return thief.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-", Labels: labels}}, opts...)
		}
	}
	patch := func(o client.Object, text string) func(...client.CreateOption) error {
		return func(...client.CreateOption) error {
			return thief.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(text)))
		}
	}
	configMap := func(namespace string, labels map[string]string) func(...client.CreateOption) error {
		return func(opts ...client.CreateOption) error {
			return thief.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "x-", Labels: labels}}, opts...)
		}
	}
	named := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	ours := map[string]string{v1alpha1.ManagedLabel: "true"}
	// With the policy in force the first attack fails for its reason.
	privileged := namespace(map[string]string{v1alpha1.AccessLabel: v1alpha1.AccessOwned, "pod-security.kubernetes.io/enforce": "privileged"})
	eventually(t, "the policy is in force", func() error {
		if err := privileged(client.DryRunAll); err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	cases := map[string]struct {
		reason  string
		do      func(...client.CreateOption) error
		allowed bool
	}{
		"Works":          {"What the agent does.", configMap("team", ours), true},
		"Tighter":        {"And this, too.", patch(&corev1.Namespace{ObjectMeta: named("", "fresh")}, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`), true},
		"Elsewhere":      {"It has no rights there.", configMap("monitoring", ours), false},
		"BindElsewhere":  {"Nor gets any.", bind("monitoring", "patchbay-agent-placeable", self), false},
		"BindKubeSystem": {"Least of all there.", bind("kube-system", "patchbay-agent-placeable", self), false},
		"BindOwn":        {"Its own namespace is Patchbay's.", bind("patchbay-system", "patchbay-agent-placeable", self), false},
		"BindMore":       {"Not more than it has.", bind("team", "cluster-admin", self), false},
		"BindOther":      {"Nor for anybody else.", bind("team", "patchbay-agent-placeable", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "team", Name: "deployer"}), false},
		"BindAll":        {"Nor for a group.", bind("team", "patchbay-agent-placeable", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:authenticated"}), false},
		"Privileged":     {"Pods there were root on nodes.", privileged, false},
		"Unlabelled":     {"The cluster's default may be anything.", namespace(map[string]string{v1alpha1.AccessLabel: v1alpha1.AccessOwned}), false},
		"OpenNamespace":  {"Only people open namespaces.", namespace(map[string]string{v1alpha1.AccessLabel: v1alpha1.AccessAdopt, "pod-security.kubernetes.io/enforce": "baseline"}), false},
		"Claim":          {"It takes no namespace for its own.", patch(&corev1.Namespace{ObjectMeta: named("", "monitoring")}, `{"metadata":{"labels":{"`+v1alpha1.AccessLabel+`":"owned"}}}`), false},
		"ClaimKube":      {"Least of all this.", patch(&corev1.Namespace{ObjectMeta: named("", "kube-system")}, `{"metadata":{"labels":{"`+v1alpha1.AccessLabel+`":"owned"}}}`), false},
		"Loosen":         {"A level is not lowered.", patch(&corev1.Namespace{ObjectMeta: named("", "fresh")}, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`), false},
		"Unenforce":      {"Nor taken off.", patch(&corev1.Namespace{ObjectMeta: named("", "fresh")}, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":null}}}`), false},
		"OldVersion":     {"Nor made an older one.", patch(&corev1.Namespace{ObjectMeta: named("", "fresh")}, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce-version":"v1.0"}}}`), false},
		"Exempt":         {"Nor is anything else said of a namespace.", patch(&corev1.Namespace{ObjectMeta: named("", "fresh")}, `{"metadata":{"labels":{"admission.example.com/ignore":"true"}}}`), false},
		"Annotate":       {"By annotations neither.", patch(&corev1.Namespace{ObjectMeta: named("", "fresh")}, `{"metadata":{"annotations":{"a":"b"}}}`), false},
		"Theirs":         {"What it did not make stays.", patch(&corev1.ConfigMap{ObjectMeta: named("team", "settings")}, `{"data":{"key":"ours"}}`), false},
		"MakeOurs":       {"It does not get the mark.", patch(&corev1.ConfigMap{ObjectMeta: named("team", "settings")}, `{"metadata":{"labels":{"`+v1alpha1.ManagedLabel+`":"true"}}}`), false},
		"AllowUse":       {"Nor an account that of people.", patch(&corev1.ServiceAccount{ObjectMeta: named("team", "deployer")}, `{"metadata":{"labels":{"`+v1alpha1.AccessLabel+`":"use"}}}`), false},
		"Unmarked":       {"What it makes is marked.", configMap("team", nil), false},
		"Opened":         {"And says nothing of access.", configMap("team", map[string]string{v1alpha1.ManagedLabel: "true", v1alpha1.AccessLabel: v1alpha1.AccessAdopt}), false},
		"Delete": {"What it did not make is not deleted.", func(...client.CreateOption) error {
			return thief.Delete(ctx, &corev1.ConfigMap{ObjectMeta: named("team", "settings")})
		}, false},
		"DeleteNamespace": {"It deletes no namespace.", func(...client.CreateOption) error {
			return thief.Delete(ctx, &corev1.Namespace{ObjectMeta: named("", "fresh")})
		}, false},
		"Secrets": {"It reads no Secrets but where the hub may write.", func(...client.CreateOption) error { return thief.List(ctx, &corev1.SecretList{}) }, false},
		"Secret": {"Not by name either.", func(...client.CreateOption) error {
			return thief.Get(ctx, client.ObjectKey{Namespace: "monitoring", Name: "password"}, &corev1.Secret{})
		}, false},
		"Copies":     {"It keeps the data of Secrets there, and nothing else.", configMap(v1alpha1.SecretCopyNamespace, ours), false},
		"BindCopies": {"Nor gets more rights there.", bind(v1alpha1.SecretCopyNamespace, "patchbay-agent-placeable", self), false},
		"Token": {"It gets no tokens.", func(...client.CreateOption) error {
			return thief.SubResource("token").Create(ctx, &corev1.ServiceAccount{ObjectMeta: named("team", "deployer")}, &authenticationv1.TokenRequest{})
		}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, opts := range [][]client.CreateOption{{client.DryRunAll}, nil} {
				if err := tc.do(opts...); (err == nil) != tc.allowed || err != nil && !apierrors.IsForbidden(err) {
					t.Errorf("%s\ngot %v, want it allowed: %t", tc.reason, err, tc.allowed)
				}
			}
		})
	}
}
