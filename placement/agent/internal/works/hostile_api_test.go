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

// settings is a ConfigMap of the cluster's own users.
const settings = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: %s}, data: {key: %s}}"

// createClusterObjects creates objects of the cluster: the namespace monitoring is the cluster's own, and team is
// open to the hub. Both have a ServiceAccount, a ConfigMap and a Secret.
func (b *testAgent) createClusterObjects(t *testing.T) {
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

// A user of the hub requests what the cluster's admin has not allowed. The agent rejects each request with object,
// field and remedy, and changes nothing.
func TestHubUserIsNoRoot(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.createClusterObjects(t)
	const pod = "{automountServiceAccountToken: false, containers: [{name: c, image: i}], %s}"
	force := func(s *v1alpha1.WorkSpec) { s.Apply.Conflict = v1alpha1.ConflictForce }
	cases := map[string]struct {
		reason         string
		change         func(*v1alpha1.WorkSpec)
		resource, text string
		want           string // part of the message
		made           string // kind of the object that must not exist; empty for no check
	}{
		"Namespace":      {"The agent did not create the namespace.", nil, "secrets", "{apiVersion: v1, kind: Secret, metadata: {name: new, namespace: monitoring}}", "kubectl label namespace monitoring placement.patchbay.io/access=create", "Secret"},
		"ForceNamespace": {"Force does not open a namespace.", force, "configmaps", fmt.Sprintf(settings, "monitoring", "ours"), "metadata.namespace", ""},
		"KubeSystem":     {"The namespace belongs to Kubernetes.", force, "configmaps", "{apiVersion: v1, kind: ConfigMap, metadata: {name: new, namespace: kube-system}}", "kube-system", "ConfigMap"},
		"Copies":         {"The namespace has the agent's copies.", force, "secrets", "{apiVersion: v1, kind: Secret, metadata: {name: new, namespace: patchbay-agent-secrets}}", "patchbay-agent-secrets", "Secret"},
		"Patchbay":       {"The namespace belongs to the node daemon.", force, "secrets", "{apiVersion: v1, kind: Secret, metadata: {name: new, namespace: patchbay-system}}", "patchbay-system", "Secret"},
		"Force":          {"An object in an open namespace may have another owner.", force, "configmaps", fmt.Sprintf(settings, "team", "ours"), "apply.conflict Force: the object exists and is not the agent's, so the cluster's admin must allow", ""},
		"Adopt":          {"Adopt needs the admin's permission.", func(s *v1alpha1.WorkSpec) { s.Apply.Conflict = v1alpha1.ConflictAdopt }, "configmaps", fmt.Sprintf(settings, "team", "theirs"), "apply.conflict Adopt", ""},
		"Account":        {"Pods must not get the rights of the cluster's ServiceAccounts.", nil, "deployments", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: new, namespace: team}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: " + fmt.Sprintf(pod, "serviceAccountName: deployer") + "}}}", "spec.template.spec.serviceAccountName: ServiceAccount deployer must come from the hub", "Deployment"},
		"Deprecated":     {"The deprecated field works, too.", nil, "pods", "{apiVersion: v1, kind: Pod, metadata: {name: new, namespace: team}, spec: " + fmt.Sprintf(pod, "serviceAccount: deployer") + "}", "spec.serviceAccount: ServiceAccount deployer", "Pod"},
		"CronJob":        {"A CronJob creates Pods later.", nil, "cronjobs", "{apiVersion: batch/v1, kind: CronJob, metadata: {name: new, namespace: team}, spec: {schedule: '* * * * *', jobTemplate: {spec: {template: {spec: " + fmt.Sprintf(pod, "restartPolicy: Never, serviceAccountName: deployer") + "}}}}}", "spec.jobTemplate.spec.template.spec.serviceAccountName", "CronJob"},
		"Token":          {"The cluster would write a token into the Secret.", nil, "secrets", "{apiVersion: v1, kind: Secret, metadata: {name: new, namespace: team, annotations: {kubernetes.io/service-account.name: deployer}}, type: kubernetes.io/service-account-token}", "type: must not be that of a ServiceAccount's token", "Secret"},
		"Rights":         {"A RoleBinding grants rights.", nil, "rolebindings", "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: new, namespace: team}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}}", "cluster's own admin", ""},
		"Volume":         {"A volume may be any path of a node.", nil, "persistentvolumes", "{apiVersion: v1, kind: PersistentVolume, metadata: {name: new}}", "must be one of ordinary workloads", ""},
		"Slices":         {"A Service could send traffic to any address.", nil, "endpointslices", "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: new, namespace: team}, addressType: IPv4, endpoints: []}", "must be one of ordinary workloads", "EndpointSlice"},
		"Endpoint":       {"A DanmEp could claim a Pod's address.", nil, "danmeps", "{apiVersion: danm.io/v1, kind: DanmEp, metadata: {name: new, namespace: team}, spec: {NetworkName: n, EndpointID: e, Host: h, Pod: p, CID: c, Interface: {Name: eth1}}}", "must be one of ordinary workloads", "DanmEp"},
		"Ranges":         {"A TenantConfig grants VLANs of the cluster's NICs.", nil, "tenantconfigs", "{apiVersion: danm.io/v1, kind: TenantConfig, metadata: {name: new}, hostDevices: [{name: ens3}]}", "must be one of ordinary workloads", "TenantConfig"},
		"Open":           {"A manifest must not open a namespace.", force, "namespaces", "{apiVersion: v1, kind: Namespace, metadata: {name: monitoring, labels: {" + v1alpha1.AccessLabel + ": adopt}}}", "cluster's own admin", ""},
		"Init":           {"An init container is checked, too.", nil, "pods", "{apiVersion: v1, kind: Pod, metadata: {name: init, namespace: fresh}, spec: " + fmt.Sprintf(pod, "initContainers: [{name: i, image: i, securityContext: {privileged: true}}]") + "}", `violates PodSecurity "baseline:latest"`, "Pod"},
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
	t.Parallel()
	b := start(t)
	b.createClusterObjects(t)
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
		b.awaitWork(t, w, "the account is not there yet", failed(v1alpha1.ReasonProgressing, "spec.serviceAccountName: ServiceAccount placed must exist before"))
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
		b.stop() // it would create the namespace again before the removal order
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
func (b *testAgent) finalize(t *testing.T, name string) {
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

// The agent's token allows no more than the agent does, also when the agent is installed under another name. Each
// attack uses a client with the agent's rights.
func TestStolenAgentToken(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.createClusterObjects(t)
	// The agent creates a namespace, and has rights in both.
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
		t.Run(name, func(t *testing.T) {
			testStolenToken(t, b, user)
			t.Run("Volumes", func(t *testing.T) { testStolenVolumeToken(t, b, user) })
		})
	}
}

func testStolenToken(t *testing.T, b *testAgent, user string) {
	t.Helper()
	config := rest.CopyConfig(b.env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	attacker, err := client.New(config, client.Options{Scheme: bed.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, parts := t.Context(), strings.Split(user, ":")
	self := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: parts[2], Name: parts[3]}
	bind := func(namespace, role string, subject rbacv1.Subject) func(...client.CreateOption) error {
		return func(opts ...client.CreateOption) error {
			return attacker.Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "x-", Labels: map[string]string{v1alpha1.ManagedLabel: "true"}},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: []rbacv1.Subject{subject},
			}, opts...)
		}
	}
	namespace := func(labels map[string]string) func(...client.CreateOption) error {
		return func(opts ...client.CreateOption) error {
			return attacker.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-", Labels: labels}}, opts...)
		}
	}
	patch := func(o client.Object, text string) func(...client.CreateOption) error {
		return func(...client.CreateOption) error {
			return attacker.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(text)))
		}
	}
	configMap := func(namespace string, labels map[string]string) func(...client.CreateOption) error {
		return func(opts ...client.CreateOption) error {
			return attacker.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "x-", Labels: labels}}, opts...)
		}
	}
	named := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	managed := map[string]string{v1alpha1.ManagedLabel: "true"}
	// The policy is in force when the first attack fails because of it.
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
		"Works":          {"The agent creates such objects.", configMap("team", managed), true},
		"Tighter":        {"The agent may raise a level.", patch(&corev1.Namespace{ObjectMeta: named("", "fresh")}, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`), true},
		"Elsewhere":      {"The agent has no rights in other namespaces.", configMap("monitoring", managed), false},
		"BindElsewhere":  {"The agent must not bind itself in other namespaces.", bind("monitoring", "patchbay-agent-placeable", self), false},
		"BindKubeSystem": {"The agent must not bind itself in kube-system.", bind("kube-system", "patchbay-agent-placeable", self), false},
		"BindOwn":        {"The agent must not bind itself in its own namespace.", bind("patchbay-system", "patchbay-agent-placeable", self), false},
		"BindMore":       {"The agent must not get more rights.", bind("team", "cluster-admin", self), false},
		"BindOther":      {"The agent must not bind other accounts.", bind("team", "patchbay-agent-placeable", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "team", Name: "deployer"}), false},
		"BindAll":        {"The agent must not bind groups.", bind("team", "patchbay-agent-placeable", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:authenticated"}), false},
		"Privileged":     {"Privileged Pods would be root on nodes.", privileged, false},
		"Unlabelled":     {"Without a label, the cluster's default applies.", namespace(map[string]string{v1alpha1.AccessLabel: v1alpha1.AccessOwned}), false},
		"OpenNamespace":  {"Only the admin opens namespaces.", namespace(map[string]string{v1alpha1.AccessLabel: v1alpha1.AccessAdopt, "pod-security.kubernetes.io/enforce": "baseline"}), false},
		"Claim":          {"The agent must not claim existing namespaces.", patch(&corev1.Namespace{ObjectMeta: named("", "monitoring")}, `{"metadata":{"labels":{"`+v1alpha1.AccessLabel+`":"owned"}}}`), false},
		"ClaimKube":      {"The agent must not claim kube-system.", patch(&corev1.Namespace{ObjectMeta: named("", "kube-system")}, `{"metadata":{"labels":{"`+v1alpha1.AccessLabel+`":"owned"}}}`), false},
		"Loosen":         {"The agent must not lower a level.", patch(&corev1.Namespace{ObjectMeta: named("", "fresh")}, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`), false},
		"Unenforce":      {"The agent must not remove a level.", patch(&corev1.Namespace{ObjectMeta: named("", "fresh")}, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":null}}}`), false},
		"OldVersion":     {"The agent must not set an older version of a level.", patch(&corev1.Namespace{ObjectMeta: named("", "fresh")}, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce-version":"v1.0"}}}`), false},
		"Exempt":         {"The agent must not set other labels of a namespace.", patch(&corev1.Namespace{ObjectMeta: named("", "fresh")}, `{"metadata":{"labels":{"admission.example.com/ignore":"true"}}}`), false},
		"Annotate":       {"The agent must not set annotations of a namespace.", patch(&corev1.Namespace{ObjectMeta: named("", "fresh")}, `{"metadata":{"annotations":{"a":"b"}}}`), false},
		"Theirs":         {"The agent must not change objects of others.", patch(&corev1.ConfigMap{ObjectMeta: named("team", "settings")}, `{"data":{"key":"ours"}}`), false},
		"MakeOurs":       {"The agent must not mark objects of others.", patch(&corev1.ConfigMap{ObjectMeta: named("team", "settings")}, `{"metadata":{"labels":{"`+v1alpha1.ManagedLabel+`":"true"}}}`), false},
		"AllowUse":       {"The agent must not label ServiceAccounts of others.", patch(&corev1.ServiceAccount{ObjectMeta: named("team", "deployer")}, `{"metadata":{"labels":{"`+v1alpha1.AccessLabel+`":"use"}}}`), false},
		"Unmarked":       {"The agent must mark the objects that it creates.", configMap("team", nil), false},
		"Opened":         {"The agent must not set the access label.", configMap("team", map[string]string{v1alpha1.ManagedLabel: "true", v1alpha1.AccessLabel: v1alpha1.AccessAdopt}), false},
		"Delete": {"The agent must not delete objects of others.", func(...client.CreateOption) error {
			return attacker.Delete(ctx, &corev1.ConfigMap{ObjectMeta: named("team", "settings")})
		}, false},
		"DeleteNamespace": {"The agent must not delete namespaces.", func(...client.CreateOption) error {
			return attacker.Delete(ctx, &corev1.Namespace{ObjectMeta: named("", "fresh")})
		}, false},
		"Secrets": {"The agent must not list all Secrets.", func(...client.CreateOption) error { return attacker.List(ctx, &corev1.SecretList{}) }, false},
		"Secret": {"The agent must not read Secrets of other namespaces.", func(...client.CreateOption) error {
			return attacker.Get(ctx, client.ObjectKey{Namespace: "monitoring", Name: "password"}, &corev1.Secret{})
		}, false},
		"Copies":     {"The namespace of the copies is for Secrets only.", configMap(v1alpha1.SecretCopyNamespace, managed), false},
		"BindCopies": {"The agent must not get more rights in the namespace of the copies.", bind(v1alpha1.SecretCopyNamespace, "patchbay-agent-placeable", self), false},
		"Token": {"The agent must not get tokens of ServiceAccounts.", func(...client.CreateOption) error {
			return attacker.SubResource("token").Create(ctx, &corev1.ServiceAccount{ObjectMeta: named("team", "deployer")}, &authenticationv1.TokenRequest{})
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
