// SPDX-License-Identifier: Apache-2.0

// Package logging sets the logs of our programs up: JSON lines on standard error,
// as Kubernetes' own components write with --logging-format=json.
package logging

import (
	"context"
	"io"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// Into returns a context that carries a logger to out, and a function that
// flushes it. The libraries log there, too. With debug it says more.
func Into(ctx context.Context, debug bool, out io.Writer) (context.Context, func()) {
	level := zapcore.InfoLevel
	if debug {
		level = zapcore.DebugLevel
	}
	encoder := zap.NewProductionEncoderConfig()
	encoder.TimeKey = "time"
	encoder.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	core := zapcore.NewCore(zapcore.NewJSONEncoder(encoder), zapcore.Lock(zapcore.AddSync(out)), level)
	z := zap.New(core)
	log := zapr.NewLogger(z)
	klog.SetLogger(log.WithName("client-go"))
	ctrllog.SetLogger(log.WithName("controller-runtime"))
	return logr.NewContext(ctx, log), func() { _ = z.Sync() }
}
