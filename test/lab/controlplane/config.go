// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// maxSocketPath is the longest path that a unix socket can have (unix(7), less the
// closing zero byte).
const maxSocketPath = 107

// Config says what to run. Only Dir and Bin have no default.
type Config struct {
	// Dir is the folder for everything of this control plane, an absolute path of
	// at most 96 bytes (etcd's socket is in it).
	Dir string
	// Bin is the folder that scripts/build-kubernetes fills.
	Bin string
	// Netns is the named network namespace to run in; empty means the caller's own.
	Netns string
	// Address is where the API server listens; 127.0.0.1 by default.
	Address netip.Addr
	// Port is the API server's port; by default 6443 in a namespace, else one that
	// is free.
	Port uint16
	// ServiceCIDR is the range of cluster IPs; 10.96.0.0/16 by default.
	ServiceCIDR netip.Prefix
	// PodCIDR makes the controller manager cut a range out of it for every node.
	// By default it allocates none.
	PodCIDR netip.Prefix

	// ControllerManager and Scheduler run these parts too. Without the controller
	// manager nothing makes service accounts, so their admission plugin is off and
	// Pods can be created all the same.
	ControllerManager, Scheduler bool

	// Etcd is the client URL of a running etcd to use; by default one is started.
	Etcd string
	// EtcdPrefix is the key prefix, by which clusters share one etcd; /registry by default.
	EtcdPrefix string
	// Durable makes etcd sync to disk before it answers. Only who pulls the plug
	// needs it: without it, killed processes lose nothing either.
	Durable bool

	// DieWithParent ends all processes with the caller, however it ends (for tests).
	DieWithParent bool
	// Tokens are accepted as bearer tokens.
	Tokens []Token
	// ExtraArgs are appended to a part's command line.
	ExtraArgs map[Part][]string
}

// Token is a static bearer token for a user. Other identities get a client
// certificate (Kubeconfig) or are impersonated by the admin.
type Token struct {
	Token, User, UID string
	Groups           []string
}

// withDefaults fills in what the caller left out and refuses what cannot work.
func (c Config) withDefaults() (Config, error) {
	if !c.Address.IsValid() {
		c.Address = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	if !c.ServiceCIDR.IsValid() {
		c.ServiceCIDR = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 96, 0, 0}), 16)
	}
	if c.EtcdPrefix == "" {
		c.EtcdPrefix = "/registry"
	}
	if err := c.check(); err != nil {
		return c, err
	}
	switch {
	case c.Port != 0:
	case c.Netns != "":
		c.Port = 6443
	default:
		port, err := FreePort(c.Address)
		if err != nil {
			return c, err
		}
		c.Port = port
	}
	return c, nil
}

func (c Config) check() error {
	if !filepath.IsAbs(c.Dir) {
		return fmt.Errorf("check folder %q: not an absolute path", c.Dir)
	}
	if len(c.path(etcdSocket)) > maxSocketPath {
		return fmt.Errorf("check folder %s: too long for a unix socket", c.Dir)
	}
	for _, part := range c.parts() {
		if _, err := exec.LookPath(c.program(part)); err != nil {
			return fmt.Errorf("find %s (scripts/install-packages and scripts/build-kubernetes bring it): %w", part, err)
		}
	}
	return nil
}

func (c Config) path(name string) string { return filepath.Join(c.Dir, name) }

func (c Config) save() error {
	raw, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("encode configuration: %w", err)
	}
	return writeFile(c.path(configFile), raw, 0o600)
}

func load(dir string) (Config, error) {
	raw, err := os.ReadFile(filepath.Join(dir, configFile))
	if errors.Is(err, os.ErrNotExist) {
		return Config{}, fmt.Errorf("open %s: %w", dir, ErrNotFound)
	}
	if err != nil {
		return Config{}, fmt.Errorf("open %s: %w", dir, err)
	}
	var c Config
	if err := json.Unmarshal(raw, &c); err != nil {
		return Config{}, fmt.Errorf("decode %s: %w", filepath.Join(dir, configFile), err)
	}
	return c, nil
}

// Names in the folder of a control plane.
const (
	configFile  = "controlplane.json"
	adminFile   = "admin.kubeconfig"
	tokenFile   = "tokens.csv"
	etcdData    = "etcd"
	etcdSocket  = "etcd.sock:0" // etcd insists on the form host:port and then uses all of it as the name
	peerSocket  = "peer.sock:0"
	caName      = "ca"
	servingName = "apiserver"
	kubeletName = "apiserver-kubelet-client"
	accountKey  = "sa.key"
)

// writeFile replaces a file as a whole, so that a reader never sees half of it.
func writeFile(path string, data []byte, mode os.FileMode) error {
	next := path + ".new"
	err := os.WriteFile(next, data, mode)
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Part is one program of a control plane.
type Part string

// The parts, in the order in which they start.
const (
	Etcd              Part = "etcd"
	APIServer         Part = "kube-apiserver"
	ControllerManager Part = "kube-controller-manager"
	Scheduler         Part = "kube-scheduler"
)

func (p Part) pidFile() string { return string(p) + ".pid" }

func (p Part) logFile() string { return string(p) + ".log" }

func (p Part) kubeconfig() string { return string(p) + ".kubeconfig" }

// parts lists what this configuration runs, in starting order.
func (c Config) parts() []Part {
	var parts []Part
	if c.Etcd == "" {
		parts = append(parts, Etcd)
	}
	parts = append(parts, APIServer)
	if c.ControllerManager {
		parts = append(parts, ControllerManager)
	}
	if c.Scheduler {
		parts = append(parts, Scheduler)
	}
	return parts
}

func (c Config) program(part Part) string {
	if part == Etcd {
		return string(Etcd) // the distribution's
	}
	return filepath.Join(c.Bin, string(part))
}

// command returns the whole command line of a part.
func (c Config) command(part Part) []string {
	args := map[Part]func() []string{
		Etcd:              c.etcdArgs,
		APIServer:         c.apiServerArgs,
		ControllerManager: c.controllerManagerArgs,
		Scheduler:         c.schedulerArgs,
	}[part]()
	return append(append([]string{c.program(part)}, args...), c.ExtraArgs[part]...)
}

func (c Config) etcdArgs() []string {
	const unusedPeer = "http://localhost:2380" // a single member talks to nobody, but must advertise something
	args := []string{
		"--name=lab",
		"--data-dir=" + c.path(etcdData),
		"--listen-client-urls=unix://" + etcdSocket, // relative to the working folder
		"--advertise-client-urls=unix://" + etcdSocket,
		"--listen-peer-urls=unix://" + peerSocket,
		"--initial-advertise-peer-urls=" + unusedPeer,
		"--initial-cluster=lab=" + unusedPeer,
		"--logger=zap",
		"--log-level=warn",
	}
	if !c.Durable {
		args = append(args, "--unsafe-no-fsync")
	}
	return args
}

func (c Config) etcdURL() string {
	if c.Etcd != "" {
		return c.Etcd
	}
	return "unix://" + c.path(etcdSocket)
}

func (c Config) url() string {
	return "https://" + net.JoinHostPort(c.Address.String(), strconv.Itoa(int(c.Port)))
}

func (c Config) apiServerArgs() []string {
	args := []string{
		"--etcd-servers=" + c.etcdURL(),
		"--etcd-prefix=" + c.EtcdPrefix,
		"--bind-address=" + c.Address.String(),
		"--advertise-address=" + c.Address.String(),
		"--secure-port=" + strconv.Itoa(int(c.Port)),
		"--tls-cert-file=" + c.path(servingName+".crt"),
		"--tls-private-key-file=" + c.path(servingName+".key"),
		"--client-ca-file=" + c.path(caName+".crt"),
		"--token-auth-file=" + c.path(tokenFile),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.path(accountKey),
		"--service-account-signing-key-file=" + c.path(accountKey),
		"--service-cluster-ip-range=" + c.ServiceCIDR.String(),
		"--kubelet-client-certificate=" + c.path(kubeletName+".crt"),
		"--kubelet-client-key=" + c.path(kubeletName+".key"),
		"--kubelet-preferred-address-types=InternalIP",
		// Webhooks are called at their endpoints: nothing serves cluster IPs here.
		"--enable-aggregator-routing=true",
	}
	if c.Address.IsLoopback() {
		// Endpoints of the Service "kubernetes" may not be loopback addresses.
		args = append(args, "--endpoint-reconciler-type=none")
	}
	if !c.ControllerManager {
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	return args
}

func (c Config) controllerManagerArgs() []string {
	args := []string{
		"--kubeconfig=" + c.path(ControllerManager.kubeconfig()),
		"--secure-port=0",
		"--leader-elect=false",
		"--kube-api-qps=500", // throttled to the default of 20 it takes 8 s to be ready instead of 4
		"--kube-api-burst=1000",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + c.path(accountKey),
		"--root-ca-file=" + c.path(caName+".crt"),
		"--cluster-signing-cert-file=" + c.path(caName+".crt"),
		"--cluster-signing-key-file=" + c.path(caName+".key"),
	}
	if c.PodCIDR.IsValid() {
		args = append(args, "--allocate-node-cidrs=true", "--cluster-cidr="+c.PodCIDR.String())
	}
	return args
}

func (c Config) schedulerArgs() []string {
	return []string{
		"--kubeconfig=" + c.path(Scheduler.kubeconfig()),
		"--secure-port=0",
		"--leader-elect=false",
	}
}

// FreePort finds a port for the API server, which cannot choose one by itself. It
// looks below the kernel's range for outgoing connections (32768 and up), so that
// none of those takes the port before the API server does.
func FreePort(addr netip.Addr) (uint16, error) {
	const low, high, tries = 20000, 32000, 100
	var last error
	for range tries {
		port := uint16(low + rand.IntN(high-low))
		l, err := net.Listen("tcp", netip.AddrPortFrom(addr, port).String())
		if err == nil {
			return port, l.Close()
		}
		last = err
	}
	return 0, fmt.Errorf("find a free port on %s: %w", addr, last)
}

// FreeAddress finds an address of the loopback network that most likely nobody else has,
// with a free port: what runs side by side cannot take it either.
func FreeAddress() (netip.AddrPort, error) {
	addr := netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(254)), byte(rand.IntN(256)), byte(1 + rand.IntN(254))})
	port, err := FreePort(addr)
	return netip.AddrPortFrom(addr, port), err
}
