package web

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
)

// check refuses who may not ask.
func (t *Router) check(r *http.Request) error {
	if err := checkSender(r.Host, r.Header.Values("Origin"), t.Token != ""); err != nil {
		return err
	}
	if t.Token != "" && !slices.Contains(t.Open, r.URL.Path) {
		// Hashes are compared: the time that this takes tells nothing about the token.
		given, expected := sha256.Sum256([]byte(bearer(r.Header.Get("Authorization")))), sha256.Sum256([]byte(t.Token))
		if subtle.ConstantTimeCompare(given[:], expected[:]) != 1 {
			return &Refusal{http.StatusUnauthorized, "the bearer token is missing or wrong", "", "invalid_api_key"}
		}
	}
	return nil
}

// bearer is the token of a header. The scheme may be in lower case.
func bearer(header string) string {
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimLeft(token, " ")
}

// checkSender refuses requests that a page of another site has its visitor's browser send. Without a token, a site
// could also give its own name this machine's address and read the answers: the name must be one of this machine then.
func checkSender(host string, origins []string, hasToken bool) error {
	if !hasToken && !isLoopback(host) {
		return Refuse(http.StatusForbidden, "the host %q is not this machine, and there is no token", host)
	}
	for _, origin := range origins {
		site, plain := strings.CutPrefix(origin, "http://")
		site, encrypted := strings.CutPrefix(site, "https://")
		if plain == encrypted || !strings.EqualFold(site, host) {
			return Refuse(http.StatusForbidden, "the request is of a page of %q, not of this service", origin)
		}
	}
	return nil
}

// isLoopback says whether the host of a header, with or without a port, is a loopback address or localhost.
func isLoopback(host string) bool {
	name := host
	if at := strings.LastIndexByte(host, ':'); at >= 0 && strings.Trim(host[at+1:], "0123456789") == "" {
		name = host[:at]
	}
	if inner, found := strings.CutPrefix(name, "["); found {
		name = strings.TrimSuffix(inner, "]")
	}
	address, err := netip.ParseAddr(name)
	return strings.EqualFold(name, "localhost") || err == nil && address.IsLoopback() && address.Zone() == ""
}

const mostConnections = 1024

type crowdedKey struct{}

func crowded(r *http.Request) bool { return r.Context().Value(crowdedKey{}) != nil }

// NewServer makes a server of the routes. Requests of connections beyond the most are refused.
func NewServer(routes *Router) *http.Server {
	var open atomic.Int64
	return &http.Server{
		Handler:           routes,
		ReadHeaderTimeout: Patience,
		IdleTimeout:       Patience,
		MaxHeaderBytes:    16 << 10,
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			if open.Add(1) > mostConnections {
				return context.WithValue(ctx, crowdedKey{}, true)
			}
			return ctx
		},
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed || state == http.StateHijacked {
				open.Add(-1)
			}
		},
	}
}
