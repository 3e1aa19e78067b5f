// Package scalers has KEDA's scaler of RabbitMQ: rabbitmq_scaler.go is KEDA's own, put here when the suite is
// installed. This file stands in for what KEDA's other files of the package bring, which drag Kubernetes in.
package scalers

import (
	"context"
	"fmt"

	"keda-trial/around"
)

// Scaler is what KEDA asks, every polling interval.
type Scaler interface {
	GetMetricsAndActivity(ctx context.Context, metricName string) ([]around.ExternalMetricValue, bool, error)
	GetMetricSpecForScaling(ctx context.Context) []around.MetricSpec
	Close(ctx context.Context) error
}

func GetMetricTargetType(*around.ScalerConfig) (around.MetricTargetType, error) {
	return "AverageValue", nil
}

func InitializeLogger(*around.ScalerConfig, string) around.Logger { return around.Logger{} }

func GenerateMetricNameWithIndex(triggerIndex int, metricName string) string {
	return fmt.Sprintf("s%d-%s", triggerIndex, metricName)
}

func GetMetricTargetMili(kind around.MetricTargetType, value float64) around.MetricTarget {
	return around.MetricTarget{Type: kind, Value: value}
}

func GenerateMetricInMili(metricName string, value float64) around.ExternalMetricValue {
	return around.ExternalMetricValue{MetricName: metricName, Value: value}
}
