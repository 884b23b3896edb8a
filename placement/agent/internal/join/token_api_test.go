// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package join_test

import (
	"context"
	"testing"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/patchbay-cni/patchbay/placement/agent/internal/join"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// waitTimeout is how long something may take on a busy machine.
const waitTimeout = time.Minute

const (
	namespace = "cluster-east"
	agentUser = "system:serviceaccount:cluster-east:agent"
)

// testHub is an API server that is both hub and cluster.
type testHub struct {
	env   *apitest.Env
	admin kubernetes.Interface
	// joinToken stands for a join token: it is a token of another ServiceAccount with the same rights.
	joinToken string
}

func newTestHub(t *testing.T) *testHub {
	t.Helper()
	env := apitest.New(t)
	admin, err := kubernetes.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	h := &testHub{env: env, admin: admin}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	joiner := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "joiner"}}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "join"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{"agent"}, Verbs: []string{"create"},
	}}}
	account := func(name string) rbacv1.Subject {
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "join"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "join"},
		Subjects: []rbacv1.Subject{account("joiner"), account("agent")},
	}
	_, err1 := admin.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
	_, err2 := admin.CoreV1().ServiceAccounts(namespace).Create(t.Context(), joiner, metav1.CreateOptions{})
	_, err3 := admin.RbacV1().Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{})
	_, err4 := admin.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{})
	answer, err5 := admin.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), "joiner", &authv1.TokenRequest{}, metav1.CreateOptions{})
	for _, err := range []error{err1, err2, err3, err4, err5} {
		if err != nil {
			t.Fatal(err)
		}
	}
	h.joinToken = answer.Status.Token
	return h
}

// accept creates the agent's ServiceAccount, as a hub does that accepts its cluster.
func (h *testHub) accept(t *testing.T) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "agent"}}
	if _, err := h.admin.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// start starts the credentials of an agent with a join token, and returns the agent's client for the hub.
func (h *testHub) start(t *testing.T, token string) kubernetes.Interface {
	t.Helper()
	hub := rest.AnonymousClientConfig(h.env.Config)
	hub.BearerToken = token
	tokens, err := join.NewTokenCredentials(t.Context(), join.Config{
		Cluster: "east", Hub: hub, Secrets: h.admin.CoreV1().Secrets(metav1.NamespaceDefault), Secret: "token",
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tokens.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	c, err := kubernetes.NewForConfig(tokens.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// userName returns the name that the hub authenticates the agent as, or the error.
func userName(ctx context.Context, c kubernetes.Interface) string {
	review, err := c.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return err.Error()
	}
	return review.Status.UserInfo.Username
}

// await waits until userName returns want.
func await(t *testing.T, what string, c kubernetes.Interface, want string) {
	t.Helper()
	got := ""
	for end := time.Now().Add(waitTimeout); time.Now().Before(end); <-time.After(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
		got = userName(ctx, c)
		cancel()
		if got == want {
			return
		}
	}
	t.Fatalf("%s: got %q, want %s", what, got, want)
}

// An agent that joins waits for its ServiceAccount, and then acts as it. It restarts with its stored token,
// also when the join token has expired, and joins again when the hub rejects that token.
func TestTokens(t *testing.T) {
	t.Parallel()
	h := newTestHub(t)
	first := h.start(t, h.joinToken)
	answered := make(chan string, 1)
	go func() { answered <- userName(t.Context(), first) }()
	select {
	case got := <-answered:
		t.Fatalf("before the cluster is accepted: got %q, want that the request waits", got)
	case <-time.After(3 * time.Second):
	}
	h.accept(t)
	await(t, "after the cluster is accepted", first, agentUser)
	if got := <-answered; got != agentUser {
		t.Errorf("request from before: got %q, want %s", got, agentUser)
	}
	await(t, "with an expired join token", h.start(t, "none"), agentUser)
	if err := h.admin.CoreV1().ServiceAccounts(namespace).Delete(t.Context(), "agent", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "without a ServiceAccount", first, "Unauthorized") // API servers cache tokens for a while
	h.accept(t)
	await(t, "after the hub created the ServiceAccount again", first, agentUser)
}
