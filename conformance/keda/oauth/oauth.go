// Package oauth stands in for golang.org/x/oauth2, which the scaler uses for logins that the suite does not try.
package oauth

import (
	"context"
	"net/http"
)

type key struct{}

// HTTPClient is where a context keeps a client.
var HTTPClient key

type Transport struct {
	http.RoundTripper
	Base http.RoundTripper
}

type Config struct {
	ClientID, ClientSecret, TokenURL string
	Scopes                           []string
	EndpointParams                   map[string][]string
}

func (*Config) Client(context.Context) *http.Client { return &http.Client{} }
