// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/patchbay-cni/patchbay/cni/conf"
	"github.com/patchbay-cni/patchbay/cni/pending"
	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/daemon/attach"
)

// dispatch checks a request and hands it to its handler.
func (s *Server) dispatch(ctx context.Context, req *wire.Request) (json.RawMessage, error) {
	if err := conf.Check(req); err != nil {
		return nil, err
	}
	switch req.Command {
	case "ADD":
		return s.add(ctx, req)
	case "DEL":
		return nil, s.del(ctx, req)
	case "STATUS":
		return nil, nil // it was answered: the daemon lives
	}
	return nil, wire.Errorf(wire.CodeNotThere, "%s is not implemented yet", req.Command)
}

// add attaches, after a DEL for the same sandbox that waits on disk.
func (s *Server) add(ctx context.Context, req *wire.Request) (json.RawMessage, error) {
	c, err := conf.Parse(req.Config)
	if err != nil {
		return nil, err
	}
	if len(c.PrevResult) > 0 {
		return nil, wire.Errorf(wire.CodeConfig,
			"network configuration: prevResult is set: %q must be the first plugin of list %q", c.Type, c.Name)
	}
	args, err := conf.ParseArgs(req.Args)
	if err != nil {
		return nil, err
	}
	leave, err := enter(ctx, s.adds)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := s.replay(ctx, pending.FileName(req.ContainerID, req.IfName)); err != nil {
		return nil, fmt.Errorf("%w: an earlier DEL of sandbox %s is not done: %w", attach.ErrTryAgain, req.ContainerID, err)
	}
	result, err := s.Handler.Add(ctx, attach.Request{
		ContainerID: req.ContainerID, IfName: req.IfName, Netns: req.Netns, Path: req.Path,
		NetName: c.Name, NamingScheme: c.NamingScheme, CNIDir: c.CNIDir,
		PodNamespace: args.PodNamespace, PodName: args.PodName, PodUID: args.PodUID,
	})
	if err != nil {
		return nil, err
	}
	return convert(result, c.CNIVersion)
}

// del detaches. It looks at neither configuration nor arguments: the journal
// has what it needs, and a plugin of another version must be able to clean up.
func (s *Server) del(ctx context.Context, req *wire.Request) error {
	leave, err := enter(ctx, s.dels)
	if err != nil {
		return err
	}
	defer leave()
	return s.Handler.Del(ctx, attach.Request{
		ContainerID: req.ContainerID, IfName: req.IfName, Netns: req.Netns, Path: req.Path,
	})
}

// enter waits for one of the places for requests in work.
func enter(ctx context.Context, places chan struct{}) (leave func(), err error) {
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %d requests are in work: %w", attach.ErrTryAgain, cap(places), context.Cause(ctx))
	}
}
