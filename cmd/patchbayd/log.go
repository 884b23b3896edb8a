// SPDX-License-Identifier: Apache-2.0

package main

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

// withLog returns a context that carries the logger: JSON lines, as Kubernetes'
// own components write with --logging-format=json. The libraries log there, too.
func withLog(ctx context.Context, debug bool, out io.Writer) (context.Context, func()) {
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
