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

// patience is how long something may take on a busy machine.
const patience = time.Minute

const (
	namespace = "cluster-east"
	agentUser = "system:serviceaccount:cluster-east:agent"
)

// office is an API server that is hub and cluster in one.
type office struct {
	env   *apitest.Env
	admin kubernetes.Interface
	// token is a join token; here another account's, that may do what a join token may.
	token string
}

func newOffice(t *testing.T) *office {
	t.Helper()
	env := apitest.New(t)
	admin, err := kubernetes.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	o := &office{env: env, admin: admin}
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
	o.token = answer.Status.Token
	return o
}

// accept makes the agent's account, as a hub does that accepts its cluster.
func (o *office) accept(t *testing.T) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "agent"}}
	if _, err := o.admin.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// start is an agent that starts with that join token. It returns its client for the hub.
func (o *office) start(t *testing.T, token string) kubernetes.Interface {
	t.Helper()
	hub := rest.AnonymousClientConfig(o.env.Config)
	hub.BearerToken = token
	tokens, err := join.NewTokenCredentials(t.Context(), join.Config{
		Cluster: "east", Hub: hub, Secrets: o.admin.CoreV1().Secrets(metav1.NamespaceDefault), Secret: "token",
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

// asks tells who the hub takes the agent for, or why not.
func asks(ctx context.Context, c kubernetes.Interface) string {
	review, err := c.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return err.Error()
	}
	return review.Status.UserInfo.Username
}

// await asks until the answer is as wanted.
func await(t *testing.T, what string, c kubernetes.Interface, want string) {
	t.Helper()
	got := ""
	for end := time.Now().Add(patience); time.Now().Before(end); <-time.After(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		got = asks(ctx, c)
		cancel()
		if got == want {
			return
		}
	}
	t.Fatalf("%s: got %q, want %s", what, got, want)
}

// An agent that joins waits for its account, then is that; it starts with the token that
// it had, whatever became of the join token; and where its token is known no longer it
// joins again.
func TestTokens(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	first := o.start(t, o.token)
	answered := make(chan string, 1)
	go func() { answered <- asks(t.Context(), first) }()
	select {
	case got := <-answered:
		t.Fatalf("before it is accepted: got %q, want it to wait", got)
	case <-time.After(3 * time.Second):
	}
	o.accept(t)
	await(t, "once accepted", first, agentUser)
	if got := <-answered; got != agentUser {
		t.Errorf("what was asked before: got %q, want %s", got, agentUser)
	}
	await(t, "with a join token that has run out", o.start(t, "none"), agentUser)
	if err := o.admin.CoreV1().ServiceAccounts(namespace).Delete(t.Context(), "agent", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "without an account", first, "Unauthorized") // API servers remember tokens for a while
	o.accept(t)
	await(t, "after the hub made the account anew", first, agentUser)
}
