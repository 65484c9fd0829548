package api

// Requests that a client passes on for somebody else, such as a page in a browser.

import (
	"net/http"
	"net/url"
)

// RoundTrip sends a request to the client's daemon, with the client's token. It keeps only path and query of the request's
// URL. It makes the client an http.RoundTripper. An error is one line that says what to do.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	base, err := url.Parse(c.base)
	if err != nil {
		return nil, err
	}
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.Host = base.Scheme, base.Host, base.Host
	if out.URL.RawPath != "" {
		out.URL.RawPath = base.EscapedPath() + out.URL.RawPath
	}
	out.URL.Path = base.Path + out.URL.Path
	out.Header.Del("Authorization")
	if c.token != "" {
		out.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Transport.RoundTrip(out)
	if err != nil {
		return nil, c.noAnswer(r.Context(), err)
	}
	return resp, nil
}
