// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package debugapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/invite"
	"github.com/patchbay-cni/patchbay/placement/agent"
	"github.com/patchbay-cni/patchbay/placement/hub"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
	"github.com/patchbay-cni/patchbay/test/source"
)

// TestMain has the kubectl of the tests in PATH, where the plugin finds it.
func TestMain(m *testing.M) {
	bin, err := source.Path("bin", "kubernetes")
	if err == nil {
		err = os.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	if err != nil {
		panic(err)
	}
	apitest.Main(m)
}

// waitTimeout is how long something may take on a busy machine.
const waitTimeout = 3 * time.Minute

// world is a hub with the cluster east, in whose namespace web the hub has placed a ConfigMap.
type world struct {
	hub        client.Client
	hubConfig  *rest.Config
	cluster    client.Client
	kubeconfig string // of the hub's admin
	link       *bed.Link
	agentLog   *syncBuffer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{agentLog: &syncBuffer{}}
	w.startHub(t)
	env := apitest.Start(t)
	w.cluster = env.Client
	if err := errors.Join(
		bed.Install(t.Context(), env.Config, "placement/crds", "CustomResourceDefinition"),
		bed.InstallAgent(t.Context(), env.Config),
		bed.Install(t.Context(), env.Config, "placement/agent-debug", "ClusterRole", "ClusterRoleBinding"),
		bed.AggregateAgentRole(t.Context(), env.Client),
	); err != nil {
		t.Fatal(err)
	}
	w.addNode(t)
	w.startAgent(t, env)
	w.place(t)
	w.addPods(t)
	return w
}

// startHub runs `patchbay-hub up` until the test ends.
func (w *world) startHub(t *testing.T) {
	t.Helper()
	at, err := controlplane.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	bin, err := source.Path("bin", "kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	dir, out := filepath.Join(t.TempDir(), "hub"), &syncBuffer{}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- hub.Run(ctx, []string{
			"up", "--bin-dir=" + bin, "--data-dir=" + dir, "--health-address=127.0.0.1:0",
			"--address=" + at.Addr().String(), fmt.Sprint("--port=", at.Port()),
		}, out, out)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the hub is up", func() error {
		select {
		case err := <-ended:
			t.Fatalf("the hub ended: %v\n%s", err, out)
		default:
		}
		if !strings.Contains(out.String(), "cluster accept east") {
			return errors.New(out.String())
		}
		return nil
	})
	w.kubeconfig = filepath.Join(dir, "admin.kubeconfig")
	if w.hubConfig, err = clientcmd.BuildConfigFromFlags("", w.kubeconfig); err != nil {
		t.Fatal(err)
	}
	w.hubConfig.QPS = -1
	if w.hub, err = client.New(w.hubConfig, client.Options{Scheme: bed.Scheme()}); err != nil {
		t.Fatal(err)
	}
	if w.link, err = bed.NewLink(w.hubConfig.Host); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.link.Close() })
	eventually(t, "kubectl sees the debug API", func() error {
		return w.get(t, "", "/apis/"+v1alpha1.DebugGroup+"/"+v1alpha1.DebugVersion)
	})
}

// addNode makes a Node whose kubelet is a fake, the namespace web, and the rights of people in the cluster.
func (w *world) addNode(t *testing.T) {
	t.Helper()
	kubelet := httptest.NewTLSServer(http.HandlerFunc(fakeKubelet))
	t.Cleanup(kubelet.Close)
	host, port, err := net.SplitHostPort(kubelet.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	w.create(t, node)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
	if err := w.cluster.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	w.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{v1alpha1.AccessLabel: v1alpha1.AccessCreate}}})
	w.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "secret"}})
	// Without a controller manager, the roles edit and view are empty. ann may do anything in web, root in the cluster; bob has no rights.
	w.create(t, binding("web", "ann", "cluster-admin", "patchbay:ann"))
	w.create(t, clusterBinding("root", "cluster-admin", "patchbay:root"))
}

// addPods makes two Pods in the namespace web: pod belongs to the object that the hub has placed, and db, with a
// Service, to the cluster's owner.
func (w *world) addPods(t *testing.T) {
	t.Helper()
	placed := &corev1.ConfigMap{}
	if err := w.cluster.Get(t.Context(), client.ObjectKey{Namespace: "web", Name: "placed"}, placed); err != nil {
		t.Fatal(err)
	}
	spec := corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	w.create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "db"}, Spec: spec})
	w.create(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "db"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	owner := metav1.NewControllerRef(placed, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	w.create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "pod", OwnerReferences: []metav1.OwnerReference{*owner}}, Spec: spec})
	eventually(t, "the agent knows the Pod", func() error {
		return w.get(t, "ann", inWeb+"/api/v1/namespaces/web/pods/pod/log")
	})
}

func (w *world) create(t *testing.T, o client.Object) {
	t.Helper()
	if err := w.cluster.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// fakeKubelet prints lines and returns each byte of an upgraded connection.
func fakeKubelet(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/containerLogs/") {
		_, _ = fmt.Fprintln(w, "a line")
		_ = http.NewResponseController(w).Flush()
		if r.URL.Query().Get("follow") == "true" {
			<-r.Context().Done()
		}
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
	_, _ = buffered.WriteTo(conn)
}

// startAgent runs the agent of east, whose connections to the hub go through the link.
func (w *world) startAgent(t *testing.T, env *apitest.Env) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "patchbay-agent"}}
	token := &authenticationv1.TokenRequest{}
	if err := env.Client.SubResource("token").Create(t.Context(), account, token); err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	i := invite.Invitation{Cluster: "east", Hub: w.link.URL(), ExpiresAt: time.Now().Add(time.Hour)}
	if err := i.Issue(t.Context(), w.hub, "test", &printed); err != nil {
		t.Fatal(err)
	}
	_, join, _ := strings.Cut(printed.String(), "--join-token=")
	dir := t.TempDir()
	local, remote := filepath.Join(dir, "local"), filepath.Join(dir, "hub")
	writeKubeconfig(t, local, env.Config.Host, env.Config.CAFile, env.Config.CAData, token.Status.Token)
	writeKubeconfig(t, remote, w.link.URL(), w.hubConfig.CAFile, w.hubConfig.CAData, strings.Fields(join)[0])
	if err := w.hub.Create(t.Context(), &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "east"}, Spec: v1alpha1.ClusterSpec{Accepted: true}}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- agent.Run(ctx, []string{
			"--cluster=east", "--kubeconfig=" + local, "--hub-kubeconfig=" + remote, "--join", "--namespace=" + v1alpha1.SystemNamespace,
			"--identity=test", "--health-address=127.0.0.1:0", "--leader-elect=false", "--debug-access",
		}, nil, w.agentLog)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func writeKubeconfig(t *testing.T, file, server, caFile string, ca []byte, token string) {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: server, CertificateAuthority: caFile, CertificateAuthorityData: ca}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		t.Fatal(err)
	}
}

// place lets the hub place a ConfigMap, and gives people their rights at the hub: ann in the namespace web, bob and root
// in all.
func (w *world) place(t *testing.T) {
	t.Helper()
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "placed", Annotations: map[string]string{v1alpha1.ClustersAnnotation: "east"}}},
		binding("web", "ann", "patchbay-debug", "ann"),
		clusterBinding("bob", "patchbay-debug", "bob"), clusterBinding("root", "patchbay-debug", "root"),
	} {
		if err := w.hub.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the ConfigMap is in the cluster, and the agent is attached", func() error {
		err := w.get(t, "ann", inWeb+"/api/v1/namespaces/web/configmaps/placed")
		if err != nil {
			return fmt.Errorf("%w\n%.4000s", err, w.agentLog.String())
		}
		return nil
	})
}

func binding(namespace, name, role, who string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: who}},
	}
}

func clusterBinding(name, role, who string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "test-" + name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: who}},
	}
}

// Paths of the cluster's API server at the hub.
const (
	inAll = "/apis/" + v1alpha1.DebugGroup + "/" + v1alpha1.DebugVersion + "/clusters/east/proxy"
	inWeb = "/apis/" + v1alpha1.DebugGroup + "/" + v1alpha1.DebugVersion + "/namespaces/web/clusters/east/proxy"
)

// do sends a request to the hub as a user; "" is the admin.
func (w *world) do(t *testing.T, who, method, path string, header http.Header) (*http.Response, error) {
	t.Helper()
	config := rest.CopyConfig(w.hubConfig)
	config.Impersonate.UserName = who
	config.NextProtos = []string{"http/1.1"}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, config.Host+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(r.Header, header)
	return transport.RoundTrip(r)
}

// get returns an error with the body unless the answer is 200.
func (w *world) get(t *testing.T, who, path string) error {
	t.Helper()
	response, err := w.do(t, who, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var text strings.Builder
	if _, err := io.Copy(&text, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", response.Status, text.String())
	}
	return nil
}

// eventually calls check until it succeeds.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	for end := time.Now().Add(waitTimeout); ; <-time.After(100 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// syncBuffer collects the output of a program, and can be read at the same time.
type syncBuffer struct {
	mu  sync.Mutex
	all strings.Builder
}

// Write implements io.Writer.
func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

// String returns the output so far.
func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

// role allows verbs of clusters/proxy in a namespace.
func role(namespace, name string, verbs ...string) *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.DebugGroup}, Resources: []string{"clusters/proxy"}, ResourceNames: []string{"east"}, Verbs: verbs},
	}}
}

func roleBinding(namespace, role, who string) *rbacv1.RoleBinding {
	b := binding(namespace, role, role, who)
	b.RoleRef.Kind = "Role"
	return b
}
