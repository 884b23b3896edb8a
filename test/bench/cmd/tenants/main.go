// SPDX-License-Identifier: Apache-2.0

// Command tenants measures how long the creation of a TenantNetwork takes that draws a
// VNI from one range, with many clients at once, through a real API server with
// admission on; beside it, of the same objects with their attributes written by the
// client and no webhook at all.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/patchbay-cni/patchbay/controller/admissiontest"
	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/bench/measure"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	log.SetLogger(logr.Discard())
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tenants:", err)
		os.Exit(1)
	}
}

// options are the size of the benchmark.
type options struct{ runs, networks, clients int }

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("tenants", flag.ContinueOnError)
	flags.IntVar(&o.runs, "runs", 1, "runs of each kind, each with an API server of its own")
	flags.IntVar(&o.networks, "networks", 5000, "TenantNetworks on one range")
	flags.IntVar(&o.clients, "clients", 20, "clients at once")
	if err := flags.Parse(args); err != nil {
		return o, fmt.Errorf("parse flags: %w", err)
	}
	return o, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	rows := []measure.Row{{Name: "admission on"}, {Name: "no webhook"}}
	for i := range rows {
		rows[i].Columns = make([]measure.Series, len(columns()))
		for range o.runs {
			r, err := measureRun(ctx, o, i == 0)
			if err != nil {
				return fmt.Errorf("%s: %w", rows[i].Name, err)
			}
			for column, v := range r.figures() {
				rows[i].Columns[column] = append(rows[i].Columns[column], v)
			}
		}
	}
	return measure.Table{
		Title:   fmt.Sprintf("%d TenantNetworks on one range, %d clients, × %d runs: median (least–most)", o.networks, o.clients, o.runs),
		Columns: columns(), Rows: rows, LessIsBetter: true,
	}.Write(out)
}

// measureRun fills an API server of its own.
func measureRun(ctx context.Context, o options, admission bool) (r result, err error) {
	env, err := apitest.Launch(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, env.Close(context.WithoutCancel(ctx))) }()
	if admission {
		stop, err := admissiontest.Serve(ctx, env, nil)
		if err != nil {
			return r, err
		}
		defer stop()
		if err := createTenantConfig(ctx, env, o.networks); err != nil {
			return r, err
		}
	}
	begin, spent := time.Now(), processorTime()
	took, err := createNetworks(ctx, env, o, admission)
	r = result{took: took, all: time.Since(begin), processor: processorTime() - spent}
	if err == nil && admission {
		err = checkAssigned(ctx, env, o.networks)
	}
	return r, err
}
