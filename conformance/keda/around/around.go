// Package around stands in for what KEDA's scaler of RabbitMQ imports from Kubernetes and from the rest of KEDA. What
// a broker sees is not in here: requests, queries, fields and sums are the scaler's own.
package around

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Kubernetes' words for metrics.
type (
	MetricTargetType string
	MetricTarget     struct {
		Type  MetricTargetType
		Value float64
	}
	MetricIdentifier     struct{ Name string }
	ExternalMetricSource struct {
		Metric MetricIdentifier
		Target MetricTarget
	}
	MetricSpec struct {
		External *ExternalMetricSource
		Type     string
	}
	ExternalMetricValue struct {
		MetricName string
		Value      float64
	}
)

type Logger struct{}

func (Logger) V(int) Logger                { return Logger{} }
func (Logger) Info(string, ...any)         {}
func (Logger) Error(error, string, ...any) {}

// Azure's logins, which nobody uses here.
const PodIdentityProviderAzureWorkload = "azure-workload"

type AuthPodIdentity struct{ Provider string }

func (AuthPodIdentity) GetIdentityID() string       { return "" }
func (AuthPodIdentity) GetIdentityTenantID() string { return "" }

type ADWorkloadIdentityTokenProvider struct{}

func NewAzureADWorkloadIdentityTokenProvider(context.Context, string, string, string, string) *ADWorkloadIdentityTokenProvider {
	return nil
}
func (*ADWorkloadIdentityTokenProvider) Refresh() error     { return errors.New("not here") }
func (*ADWorkloadIdentityTokenProvider) OAuthToken() string { return "" }

// Type is a way to log in: the scaler asks for OAuth alone.
type Type string

const (
	OAuthType     Type = "oauth"
	BasicAuthType Type = "basic"
	TLSAuthType   Type = "tls"
)

type Config struct {
	Modes                                 []Type
	OauthTokenURI, ClientID, ClientSecret string
	Scopes                                []string
	EndpointParams                        map[string][]string
}

func (*Config) ValidateAllowed(...Type) error { return nil }
func (*Config) EnabledOAuth() bool            { return false }

// CloseableRoundTripper is what KEDA counts requests with.
type CloseableRoundTripper interface {
	http.RoundTripper
	CloseIdleConnections()
}

func CreateHTTPClient(timeout time.Duration, _ bool) *http.Client {
	return &http.Client{Timeout: timeout, Transport: CreateRTWithTLSConfig(nil)}
}

func CreateRTWithTLSConfig(config *tls.Config) CloseableRoundTripper {
	return &http.Transport{TLSClientConfig: config}
}

func NewTLSConfigWithPassword(_, _, _, _ string, _ bool) (*tls.Config, error) {
	return nil, errors.New("not here")
}

func NormalizeString(text string) string {
	return strings.NewReplacer("/", "-", ".", "-", ":", "-", "%", "-", "(", "-", ")", "-").Replace(text)
}

// ScalerConfig is what a ScaledObject says.
type ScalerConfig struct {
	ScalableObjectNamespace string
	ScalableObjectName      string
	GlobalHTTPTimeout       time.Duration
	TriggerMetadata         map[string]string
	AuthParams              map[string]string
	PodIdentity             AuthPodIdentity
	TriggerIndex            int
}

// TypedConfig fills fields by their tags, as KEDA does: `keda:"name=pageSize, order=..., default=100"`.
func (config *ScalerConfig) TypedConfig(into any) error {
	fields := reflect.ValueOf(into).Elem()
	for i := 0; i < fields.NumField(); i++ {
		tag := map[string]string{}
		for _, part := range strings.Split(fields.Type().Field(i).Tag.Get("keda"), ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			tag[name] = strings.TrimSpace(value)
		}
		name, isNamed := tag["name"]
		if !isNamed {
			continue
		}
		text := config.TriggerMetadata[name]
		if text == "" {
			text = config.AuthParams[name]
		}
		if text == "" {
			text = tag["default"]
		}
		if _, isOptional := tag["optional"]; text == "" {
			if isOptional {
				continue
			}
			return fmt.Errorf("missing required parameter %q", name)
		}
		if err := set(fields.Field(i), text); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if checked, ok := into.(interface{ Validate() error }); ok {
		return checked.Validate()
	}
	return nil
}

func set(field reflect.Value, text string) (err error) {
	switch field.Interface().(type) {
	case string:
		field.SetString(text)
	case float64:
		var value float64
		value, err = strconv.ParseFloat(text, 64)
		field.SetFloat(value)
	case int64:
		var value int64
		value, err = strconv.ParseInt(text, 10, 64)
		field.SetInt(value)
	case bool:
		var value bool
		value, err = strconv.ParseBool(text)
		field.SetBool(value)
	case time.Duration:
		var value time.Duration
		value, err = time.ParseDuration(text)
		field.SetInt(int64(value))
	default:
		err = fmt.Errorf("a %s is not known here", field.Type())
	}
	return err
}
