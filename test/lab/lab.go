// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
	"github.com/patchbay-cni/patchbay/test/lab/fabric"
	"github.com/patchbay-cni/patchbay/test/lab/image"
	"github.com/patchbay-cni/patchbay/test/lab/node"
	"github.com/patchbay-cni/patchbay/test/lab/remote"
)

// Where labs keep their files. What is in runDir is small.
const (
	runDir  = "/run/patchbay-lab"
	diskDir = "/var/tmp/patchbay-lab"
)

// Names in a lab's folder.
const (
	stateFile = "lab.json"
	planeDir  = "controlplane"
	nodesDir  = "nodes"
	baseFile  = "images/base.tar"
)

// ErrNotFound says that there is no lab of that name.
var ErrNotFound = errors.New("no such lab")

// ErrNoNode says that the lab has no node of that name.
var ErrNoNode = errors.New("no such node")

// ErrNotReady says what a node's readiness still lacks.
var ErrNotReady = errors.New("not ready")

// Lab is a lab that is up, or was before something broke.
type Lab struct {
	config Config
	log    *progress
}

// Open returns the lab of that name. The error is ErrNone when there is none.
func Open(name string) (*Lab, error) {
	config, err := Config{Name: name, Bin: "/"}.named()
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(config.path(stateFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open lab %s: %w; start it with: %s up", config.Name, ErrNotFound, CommandLine(config.Name))
	}
	if err != nil {
		return nil, fmt.Errorf("open lab: %w", err)
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return nil, fmt.Errorf("decode %s: %w", config.path(stateFile), err)
	}
	if config, err = config.withDefaults(); err != nil {
		return nil, err
	}
	return &Lab{config: config, log: newProgress(config.Progress)}, nil
}

// CommandLine is how a command for the lab of that name begins, in hints.
func CommandLine(name string) string {
	if name == DefaultName {
		return "bin/lab"
	}
	return "bin/lab --name " + name
}

// Name is the lab's name.
func (l *Lab) Name() string { return l.config.Name }

// Netns is the name of the lab's network namespace.
func (l *Lab) Netns() string { return l.config.fabric().Netns }

// SetProgress makes the lab tell about its steps from now on.
func (l *Lab) SetProgress(out io.Writer) { l.log = newProgress(out) }

// Step reports fn as a step of the lab's.
func (l *Lab) Step(what string, fn func() error) error { return l.log.step(what, fn) }

// Up makes the lab or completes the one that is there: what runs goes on running,
// what is missing is started. It returns when all nodes are ready. After an error the
// lab is left for a look at its logs.
func Up(ctx context.Context, config Config) (*Lab, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := config.checkMachine(); err != nil {
		return nil, fmt.Errorf("start lab %s: %w", config.Name, err)
	}
	unlock, err := config.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	l := &Lab{config: config, log: newProgress(config.Progress)}
	if l.usable() {
		l.config.Owner = ownerOf(config.path(stateFile), config.Owner)
	} else if err := config.wipe(ctx); err != nil {
		return nil, fmt.Errorf("clear what is left of lab %s: %w", config.Name, err)
	}
	if err := l.config.save(); err != nil {
		return nil, err
	}
	if err := l.up(ctx); err != nil {
		return nil, fmt.Errorf("start lab %s: %w", config.Name, err)
	}
	return l, nil
}

// usable tells whether a lab that is there can be completed. Without its own state or
// its control plane's nothing is known of it: nodes would wait for an API server whose
// certificates nobody has, and their disks would be those of another cluster.
func (l *Lab) usable() bool {
	_, err := os.Stat(l.config.path(stateFile))
	if err != nil {
		return false
	}
	_, err = l.plane()
	return err == nil
}

func (l *Lab) up(ctx context.Context) error {
	if err := l.makeNodes(); err != nil {
		return err
	}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"make network " + l.Netns(), func(context.Context) error { return l.config.fabric().Create() }},
		{"start control plane", l.startPlane},
		{"make images", func(context.Context) error { return l.writeImages() }},
		{"boot nodes", l.startNodes},
		{"wait for nodes", l.awaitNodes},
	} {
		if err := l.log.step(step.what, func() error { return step.do(ctx) }); err != nil {
			return err
		}
	}
	if l.config.Install {
		return l.log.step("install Patchbay", func() error { return l.Install(ctx) })
	}
	return nil
}

// makeNodes makes the nodes that are missing, without starting them: their folders and types.
func (l *Lab) makeNodes() error {
	nodes, err := l.config.wantedNodes()
	if err != nil {
		return err
	}
	kinds := map[Kind]bool{}
	for _, name := range nodes {
		want, err := l.config.wantedType(name)
		if err == nil {
			err = want.check(l.config.Bin)
		}
		if err == nil {
			err = storeType(l.config.nodeDir(name), want)
		}
		if err != nil {
			return err
		}
		kinds[want.Kind] = true
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		kernel, err := kind.findKernel(l.config.Bin)
		if err != nil {
			return err
		}
		l.log.printf("lab %s: nodes boot %s", l.config.Name, kernel.Describe())
	}
	return nil
}

// startPlane starts the control plane, or the parts of it that are missing.
func (l *Lab) startPlane(ctx context.Context) error {
	plane, err := l.plane()
	if errors.Is(err, controlplane.ErrNotFound) {
		_, err := controlplane.Start(ctx, l.config.plane())
		return err
	}
	if err != nil {
		return err
	}
	for _, part := range plane.Parts() {
		if err := plane.StartPart(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) plane() (*controlplane.ControlPlane, error) {
	return controlplane.Open(l.config.path(planeDir))
}

func (l *Lab) writeImages() error {
	file := l.config.path(baseFile)
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("make image folder: %w", err)
	}
	return image.Write(file)
}

// startNodes boots all nodes that are off, those that were added later too.
func (l *Lab) startNodes(ctx context.Context) error {
	nodes, err := l.Nodes()
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range nodes {
		group.Go(func() error { return l.startNode(ctx, name) })
	}
	return group.Wait()
}

// Nodes lists the names of all nodes, also of those that are off, in order.
func (l *Lab) Nodes() ([]string, error) { return l.config.nodes() }

// AddNode makes one more node, by its name, and waits until it is ready.
func (l *Lab) AddNode(ctx context.Context, name string, nodeType NodeType) error {
	_, err := l.existingNode(name)
	if err == nil {
		err = os.ErrExist
	}
	if !errors.Is(err, ErrNoNode) {
		return fmt.Errorf("add %s: %w", name, err)
	}
	nodeType = nodeType.withDefaults()
	if err := nodeType.check(l.config.Bin); err != nil {
		return fmt.Errorf("add %s: %w", name, err)
	}
	if err := storeType(l.config.nodeDir(name), nodeType); err != nil {
		return err
	}
	return l.StartNode(ctx, name)
}

// StartNode switches a node on that is new or off, and waits until it is ready.
func (l *Lab) StartNode(ctx context.Context, name string) error {
	unlock, err := l.config.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := l.log.step("boot "+name, func() error { return l.startNode(ctx, name) }); err != nil {
		return err
	}
	return l.log.step("wait for "+name, func() error { return l.awaitNode(ctx, name) })
}

func (l *Lab) startNode(ctx context.Context, name string) error {
	c, err := l.nodeConfig(name)
	if err != nil {
		return err
	}
	if err := node.Start(ctx, c); err != nil {
		return err
	}
	l.log.printf("  %s runs", name)
	if err := c.Import(ctx, c.Images...); err != nil {
		return err
	}
	l.log.printf("  %s has its images", name)
	return nil
}

func (l *Lab) awaitNodes(ctx context.Context) error {
	names, err := l.Nodes()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := l.awaitNode(ctx, name); err != nil {
			return err
		}
		l.log.printf("  %s is ready", name)
	}
	return nil
}

// awaitNode returns when kubelet has reported since this boot that it is ready: what
// the API server says of a node that lost its power stays true for a while.
func (l *Lab) awaitNode(ctx context.Context, name string) error {
	const pause = 100 * time.Millisecond
	client, err := l.client()
	if err != nil {
		return err
	}
	c, err := l.existingNode(name)
	if err != nil {
		return err
	}
	boot := "" // asked once: in QEMU, starting a program takes long
	for {
		var err error
		if boot == "" {
			boot, err = l.bootID(ctx, name)
		}
		if err == nil {
			err = ready(ctx, client, name, boot)
		}
		if err == nil {
			return nil
		}
		if !node.IsOn(c.Dir) {
			return fmt.Errorf("wait for %s: %w", name, node.ErrOff)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (%w)", name, ctx.Err(), err)
		}
	}
}

func (l *Lab) bootID(ctx context.Context, name string) (string, error) {
	boot, err := l.Exec(ctx, name, "cat", "/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(boot), err
}

func ready(ctx context.Context, client kubernetes.Interface, name, boot string) error {
	n, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%s has not registered: %w", name, ErrNotReady)
	}
	if err != nil {
		return fmt.Errorf("get node: %w", err)
	}
	if n.Status.NodeInfo.BootID != boot {
		return fmt.Errorf("%s has not reported since its boot: %w", name, ErrNotReady)
	}
	return readyCondition(n)
}

func readyCondition(n *corev1.Node) error {
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			return fmt.Errorf("%s: %w: %s", n.Name, ErrNotReady, condition.Message)
		}
		if condition.Type == corev1.NodeReady {
			return nil
		}
	}
	return fmt.Errorf("%s has no condition yet: %w", n.Name, ErrNotReady)
}

// KillNode cuts a node's power. Its disk stays.
func (l *Lab) KillNode(ctx context.Context, name string) error {
	c, err := l.existingNode(name)
	if err != nil {
		return err
	}
	return node.Kill(ctx, c.Dir)
}

// CutNode takes all network cables out of a node; Exec still works.
func (l *Lab) CutNode(name string) error {
	c, err := l.existingNode(name)
	if err != nil {
		return err
	}
	return c.Fabric.Cut(c.Port)
}

// HealNode puts the cables back.
func (l *Lab) HealNode(name string) error {
	c, err := l.existingNode(name)
	if err != nil {
		return err
	}
	return c.Fabric.Heal(c.Port)
}

// existingNode is address for a node that exists.
func (l *Lab) existingNode(name string) (node.Config, error) {
	c, err := l.nodeAddress(name)
	if err != nil {
		return c, err
	}
	if _, err := os.Stat(c.Dir); err != nil {
		return c, fmt.Errorf("find %s: %w", name, ErrNoNode)
	}
	return c, nil
}

// nodeConfig is all that is needed to boot a node.
func (l *Lab) nodeConfig(name string) (node.Config, error) {
	c, err := l.nodeAddress(name)
	if err != nil {
		return c, err
	}
	plane, err := l.plane()
	if err != nil {
		return c, err
	}
	if c.Kubeconfig, err = plane.NodeKubeconfig(name); err != nil {
		return c, err
	}
	if c.ClientCA, err = os.ReadFile(filepath.Join(l.config.path(planeDir), "ca.crt")); err != nil {
		return c, fmt.Errorf("read authority: %w", err)
	}
	nodeType, err := l.config.typeOf(name)
	if err != nil {
		return c, err
	}
	if c.Images, err = l.images(nodeType.Kind); err != nil {
		return c, err
	}
	if c.Kernel, err = nodeType.Kind.findKernel(l.config.Bin); err != nil {
		return c, err
	}
	if c.Containerd2, err = nodeType.Runtime.findContainerd2(l.config.Bin); err != nil {
		return c, err
	}
	c.CheckImages = nodeType.Kind == KindUML
	c.Labels = kindLabel + "=" + string(nodeType.Kind)
	c.Disk = filepath.Join(l.config.disks(), name+".ext4")
	c.Memory = l.config.Memory
	c.Init = filepath.Join(l.config.Bin, program)
	c.Bin = filepath.Join(l.config.Bin, "kubernetes")
	c.Logf = l.log.printf
	return c, nil
}

// images are the archives that nodes of the kind import when they boot: those of the programs that run there.
func (l *Lab) images(kind Kind) ([]string, error) {
	built, err := l.config.builtImages()
	if err != nil {
		return nil, err
	}
	_, hosts, err := l.controllerNodes()
	if err != nil {
		return nil, err
	}
	if kind != hosts {
		built = slices.DeleteFunc(built, func(file string) bool { return filepath.Base(file) == productManager+".tar" })
	}
	return append([]string{l.config.path(baseFile)}, built...), nil
}

// nodeAddress is what is needed to reach a node, cut its cables or its power.
func (l *Lab) nodeAddress(name string) (node.Config, error) {
	p, err := port(name)
	if err != nil {
		return node.Config{}, err
	}
	return node.Config{Name: name, Port: p, Fabric: l.config.fabric(), Dir: l.config.nodeDir(name)}, nil
}

const nodePrefix = "node-"

func nodeName(p fabric.Port) string { return nodePrefix + strconv.Itoa(int(p)) }

// port is the inverse of nodeName.
func port(name string) (fabric.Port, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(name, nodePrefix))
	if err != nil || n < 1 || n > fabric.MaxIndex || nodeName(fabric.Port(n)) != name {
		return 0, fmt.Errorf("check node's name %q: want node-1 to node-%d", name, fabric.MaxIndex)
	}
	return fabric.Port(n), nil
}

// addFreeNames adds the lowest free names until there are n nodes.
func addFreeNames(nodes []string, n int) []string {
	for p := fabric.Port(1); len(nodes) < n && p <= fabric.MaxIndex; p++ {
		if name := nodeName(p); !slices.Contains(nodes, name) {
			nodes = append(nodes, name)
		}
	}
	return nodes
}

// Run runs a command in a node's kernel, below its root, and returns its exit code.
// It works on a node whose cables are cut.
func (l *Lab) Run(ctx context.Context, name string, r remote.Request, s remote.Streams) (int, error) {
	c, err := l.existingNode(name)
	if err != nil {
		return -1, err
	}
	return c.Run(ctx, r, s)
}

// Exec runs a command in a node's kernel and returns its standard output. Any exit
// code but 0 is an error, which has the standard error.
func (l *Lab) Exec(ctx context.Context, name string, args ...string) (string, error) {
	var out, errOut bytes.Buffer
	code, err := l.Run(ctx, name, remote.Request{Args: args}, remote.Streams{Out: &out, Err: &errOut})
	if err == nil && code != 0 {
		err = fmt.Errorf("run %s on %s: exit code %d: %s", strings.Join(args, " "), name, code, strings.TrimSpace(errOut.String()))
	}
	return out.String(), err
}

// Health is one part of the lab and how it is.
type Health struct {
	// Part is a program of the control plane or a node.
	Part string
	// State is a few words; Detail says more about what is not well.
	State, Detail string
	// OK is false for what is not as Up leaves it.
	OK bool
}

// Status looks at every part of the lab.
func (l *Lab) Status(ctx context.Context) ([]Health, error) {
	plane, err := l.plane()
	if err != nil {
		return nil, err
	}
	var all []Health
	for _, part := range plane.Parts() {
		h := Health{Part: string(part), State: "running", OK: true}
		if !plane.Alive(part) {
			h = Health{Part: string(part), State: "down", Detail: "lab restart " + string(part)}
		}
		all = append(all, h)
	}
	client, err := l.client()
	if err != nil {
		return nil, err
	}
	nodes, err := l.Nodes()
	if err != nil {
		return nil, err
	}
	for _, name := range nodes {
		all = append(all, l.nodeHealth(ctx, client, name))
	}
	return all, nil
}

func (l *Lab) nodeHealth(ctx context.Context, client kubernetes.Interface, name string) Health {
	h := Health{Part: name}
	c, err := l.existingNode(name)
	if err != nil {
		h.State, h.Detail = "broken", err.Error()
		return h
	}
	if !node.IsOn(c.Dir) {
		h.State, h.Detail = "off", "lab node start "+name
		return h
	}
	if cut, err := c.Fabric.IsCut(c.Port); err != nil {
		h.State, h.Detail = "broken", err.Error()
		return h
	} else if cut {
		h.State, h.Detail = "cut off", "lab node heal "+name
		return h
	}
	boot, err := l.bootID(ctx, name)
	if err == nil {
		err = ready(ctx, client, name, boot)
	}
	if err != nil {
		h.State, h.Detail = "not ready", err.Error()
		return h
	}
	var addresses []string
	for _, card := range []fabric.Card{c.Port.Management(), c.Port.Trunk(), c.Port.Second()} {
		addresses = append(addresses, fmt.Sprintf("%s on %s", card.Prefix.Addr(), card.Name))
	}
	detail := strings.Join(addresses, ", ")
	nodeType, err := l.config.typeOf(name)
	if err == nil && nodeType.Kind != KindUML {
		detail += ", kind " + string(nodeType.Kind)
	}
	if err == nil && nodeType.Runtime != RuntimeContainerd {
		detail += ", " + string(nodeType.Runtime)
	}
	return Health{Part: name, State: "ready", Detail: detail, OK: true}
}
