// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
)

// Times of starting and ending.
const (
	startTimeout = 2 * time.Minute
	endTimeout   = 15 * time.Second
	pollInterval = 200 * time.Millisecond
)

// Run starts the API server, calls serve when it answers, and ends everything when serve
// returns, ctx ends or one of its programs does. That ctx has ended is no error, however far
// the start had come; serve is to return then.
func Run(ctx context.Context, c Config, serve func(context.Context) error) error {
	if err := c.Check(); err != nil {
		return err
	}
	err := start(ctx, c, serve)
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}

// start takes the folder, prepares it and runs the programs.
func start(ctx context.Context, c Config, serve func(context.Context) error) error {
	lock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := errors.Join(c.free(ctx), c.prepare()); err != nil {
		return err
	}
	r := &runner{Config: c, lock: lock}
	if err := r.bootstrap(ctx); err != nil {
		return err
	}
	return r.run(ctx, serve)
}

// runner runs the programs of a hub whose folder is taken.
type runner struct {
	Config

	lock *os.File
}

// run starts the programs in order, and calls serve when the API server answers.
func (r *runner) run(ctx context.Context, serve func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	stopEtcd, err := r.start(ctx, group, etcd(etcdFolder))
	if err != nil {
		return err
	}
	// Serve ends first: it has writes to finish, and a Lease to give back. Then each program
	// ends before that which it needs: without etcd, the API server takes 10 seconds.
	group.Go(func() error {
		defer stopEtcd()
		if err := r.awaitEtcd(ctx); err != nil {
			return err
		}
		stopServer, err := r.start(ctx, group, apiServer(r.Config))
		if err != nil {
			return err
		}
		defer stopServer()
		if err := r.await(ctx); err != nil {
			return err
		}
		stopManager, err := r.start(ctx, group, manager())
		if err != nil {
			return err
		}
		defer stopManager()
		return serve(ctx)
	})
	return group.Wait()
}

// start runs a program, which is not to end before stop, also when ctx does. Stop waits for
// the end.
func (r *runner) start(ctx context.Context, group *errgroup.Group, p program) (stop func(), err error) {
	path, err := find(r.BinDir, p.name)
	if err != nil {
		return nil, fmt.Errorf("find %s in %s or the PATH: %w", p.name, r.BinDir, err)
	}
	log, err := r.Log(p.name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	cmd := exec.CommandContext(ctx, path, p.args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.DataDir, log, log
	cmd.ExtraFiles = []*os.File{r.lock}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = endTimeout
	// A group of its own: Ctrl-C is for us, and we end them in order. When we are killed
	// the kernel kills them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error), make(chan struct{})
	group.Go(func() error {
		// The death signal follows the thread that forked: it stays until the child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		defer cancel()
		defer log.Close()
		err := cmd.Start()
		started <- err
		if err != nil {
			return nil // who waits for the start reports it
		}
		err = cmd.Wait()
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("%s ended (%w): see %s", p.name, err, log.Name())
	})
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	return func() { cancel(); <-ended }, nil
}

// await waits until the API server answers.
func (r *runner) await(ctx context.Context) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", r.Kubeconfig())
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		_, err := client.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err == nil {
			return nil
		}
		if pause(ctx); ctx.Err() != nil {
			return fmt.Errorf("wait for the API server at %s: %w", r.url(), err)
		}
	}
}
