// Package telemetry reports on commands and sessions: metrics for Prometheus, and
// metrics and traces for an OpenTelemetry collector. It gets no text of a command, and
// the labels of metrics are words from small sets.
//
// It starts nothing and opens no address unless the options or variables ask for it.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Options of Start.
type Options struct {
	Version  string // of this program
	Revision string // of its source; "" if it is not known
	Go       string // version of the compiler
	// Getenv reads the variables of OpenTelemetry; nil: none are set. The exporters read
	// their own variables from the process's environment.
	Getenv func(string) string
	// Listener serves metrics for Prometheus; nil: none are served. Close closes it.
	Listener net.Listener
	// Levels is called when the gauges are read; nil: there are none.
	Levels func() Levels
	// Warn is called with errors of sending to a collector. It may be called
	// concurrently.
	Warn func(error)
}

// Levels are the values of the gauges at one moment.
type Levels struct {
	Sessions, Warm           int
	IdleRunners, BusyRunners int
	Waiting                  int   // commands
	Unrecorded               int64 // records that the audit log lacks, so far
}

// Telemetry counts events, and sends or serves the results. It is safe for concurrent use.
type Telemetry struct {
	meters *metric.MeterProvider
	spans  *sdktrace.TracerProvider
	tracer trace.Tracer
	parent trace.SpanContext // of all spans; not valid where the parent process has none
	in     instruments
	stop   func() error // of the server; nil without one
	// patience bounds Close; it is closeTime, but for tests.
	patience time.Duration
}

// wants reports whether the variables ask for an exporter of a signal, TRACES or
// METRICS. It returns an error for an exporter that this program does not have.
func (o Options) wants(signal string) (bool, error) {
	get := o.Getenv
	if get == nil || strings.EqualFold(get("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	switch exporter := get("OTEL_" + signal + "_EXPORTER"); exporter {
	case "none":
		return false, nil
	case "":
		if get("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && get("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") == "" {
			return false, nil
		}
	case "otlp":
	default:
		return false, fmt.Errorf("OTEL_%s_EXPORTER: there is no exporter %q here: it can be otlp or none", signal, exporter)
	}
	protocol := get("OTEL_EXPORTER_OTLP_" + signal + "_PROTOCOL")
	if protocol == "" {
		protocol = get("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	if protocol != "" && protocol != "http/protobuf" {
		return false, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL: protocol %q is not spoken here: it can be http/protobuf", protocol)
	}
	return true, nil
}

// Start starts what the options and variables ask for. It returns nil if they ask for nothing. If
// Start returns an error, it has closed the listener.
func Start(ctx context.Context, o Options) (*Telemetry, error) {
	traces, tracesErr := o.wants("TRACES")
	metrics, metricsErr := o.wants("METRICS")
	err := errors.Join(tracesErr, metricsErr)
	if err == nil && !traces && !metrics && o.Listener == nil {
		return nil, nil //nolint:nilnil // nothing is wanted, and that is not an error
	}
	t := &Telemetry{patience: closeTime}
	if err == nil {
		err = t.start(ctx, o, traces, metrics)
	}
	if err != nil {
		if o.Listener != nil {
			err = errors.Join(err, o.Listener.Close())
		}
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	return t, nil
}

func (t *Telemetry) start(ctx context.Context, o Options, traces, metrics bool) error {
	if o.Warn != nil {
		otel.SetErrorHandler(otel.ErrorHandlerFunc(o.Warn))
	}
	// The variables override these attributes.
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "sandboxbash"), attribute.String("service.version", o.Version),
	), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return err
	}
	readers := []metric.Option{metric.WithResource(about)}
	var registry *prometheus.Registry
	if o.Listener != nil {
		registry = prometheus.NewRegistry()
		reader, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo())
		if err != nil {
			return err
		}
		readers = append(readers, metric.WithReader(reader))
	}
	if metrics {
		exporter, err := otlpmetrichttp.New(ctx)
		if err != nil {
			return err
		}
		readers = append(readers, metric.WithReader(metric.NewPeriodicReader(exporter)))
	}
	if traces {
		exporter, err := otlptracehttp.New(ctx)
		if err != nil {
			return err
		}
		t.spans = sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
		t.tracer = t.spans.Tracer(scope)
		t.parent = parent(o.Getenv)
	}
	t.meters = metric.NewMeterProvider(readers...)
	if err := t.in.make(t.meters.Meter(scope), o); err != nil {
		return err
	}
	if registry != nil {
		t.stop = serve(o.Listener, registry)
	}
	return nil
}

// parent is the span that started this process. Its name in the environment is that
// of OpenTelemetry's "environment variables as context propagation carriers".
func parent(get func(string) string) trace.SpanContext {
	carrier := propagation.MapCarrier{"traceparent": get("TRACEPARENT"), "tracestate": get("TRACESTATE")}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// scope is the instrumentation scope of instruments and spans.
const scope = "github.com/sandboxbash/sandboxbash"

// closeTime bounds the last sending to a collector: one that does not
// answer is given up.
const closeTime = 2 * time.Second

// Close sends what has not been sent, and stops the exporters and the listener.
func (t *Telemetry) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.patience)
	defer cancel()
	var stopErr, metersErr, spansErr error
	if t.stop != nil {
		stopErr = t.stop()
	}
	var both sync.WaitGroup // in parallel: a collector of metrics that does not answer must not cost the spans
	both.Go(func() { metersErr = t.meters.Shutdown(ctx) })
	if t.spans != nil {
		both.Go(func() { spansErr = t.spans.Shutdown(ctx) })
	}
	both.Wait()
	return errors.Join(stopErr, metersErr, spansErr)
}
