package inject

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
)

// reads gives one chunk a call, and err with the last one.
type reads struct {
	chunks [][]byte
	err    error
}

func (r *reads) Read(p []byte) (int, error) {
	if len(r.chunks) == 0 {
		return 0, r.err
	}
	n := copy(p, r.chunks[0])
	if r.chunks[0] = r.chunks[0][n:]; len(r.chunks[0]) > 0 {
		return n, nil
	}
	if r.chunks = r.chunks[1:]; len(r.chunks) == 0 {
		return n, r.err
	}
	return n, nil
}

// incoming returns what a client gets of an answer.
func incoming(tb testing.TB, set *Set, body io.Reader) (string, error) {
	tb.Helper()
	r := &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(body)}
	if err := set.Incoming(r); err != nil {
		tb.Fatal(err)
	}
	got, err := io.ReadAll(r.Body)
	return string(got), err
}

func TestIncomingBody(t *testing.T) {
	t.Parallel()
	set := newSet(t)
	quoted, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	for _, tt := range []struct {
		name, body, want string
		err              error
	}{
		{"as it is", "x " + value + " y", "x [REDACTED:TOKEN] y", nil},
		{"alone", value, "[REDACTED:TOKEN]", nil},
		{"JSON", `{"a":` + string(quoted) + `}`, `{"a":"[REDACTED:TOKEN]"}`, nil},
		{"URL", "k=" + url.QueryEscape(value) + "&", "k=[REDACTED:TOKEN]&", nil},
		{"base64", base64.StdEncoding.EncodeToString([]byte(value)) + "\n", "[REDACTED:TOKEN]=\n", nil},
		{"none", "plain", "plain", nil},
		{"empty", "", "", nil},
		{"the start of one", "x hunt", "x hunt", nil},
		{"most of one", "x " + value[:len(value)-1], "x [REDACTED]", nil},
		{"data and an error", "x " + value, "x [REDACTED:TOKEN]", broken},
		{"an error within one", "x " + value[:5], "x ", broken},
		{"an error after one and more", "x " + value + " y " + value[:9], "x [REDACTED:TOKEN] y ", broken},
	} {
		end := tt.err
		if end == nil {
			end = io.EOF
		}
		for cut := range len(tt.body) + 1 {
			chunks := [][]byte{[]byte(tt.body[:cut]), []byte(tt.body[cut:])}
			for _, body := range []io.Reader{&reads{chunks, end}, iotest.OneByteReader(&reads{[][]byte{[]byte(tt.body)}, end})} {
				got, err := incoming(t, set, body)
				if tt.name == "data and an error" && got == "x " && errors.Is(err, tt.err) {
					continue // the value might have gone on
				}
				if got != tt.want || !errors.Is(err, tt.err) {
					t.Fatalf("%s, cut at %d: %q, %v; want %q, %v", tt.name, cut, got, err, tt.want, tt.err)
				}
			}
		}
	}
}

// FuzzIncoming holds bodies to the promise: wherever they are cut, and however they end, no value gets
// through, and what gets through is what a whole and regular body gives.
func FuzzIncoming(f *testing.F) {
	f.Add("hunter2hunter2", "x ", " y", []byte{0}, true)
	f.Add("aaaaaaaa", "aaa", "a", []byte{3, 1}, false)
	f.Add("sk-ant-012345", "sk-", "sk-ant-01234", []byte{7}, true)
	f.Fuzz(func(t *testing.T, secret, before, after string, cuts []byte, regular bool) {
		set, err := New([]Secret{{Name: "A", Placeholder: placeholder, Value: secret, Rules: rules(t, "example.com")}})
		if err != nil || strings.ContainsAny(secret, "[]") || strings.Contains("REDACTED:A", secret) {
			t.Skip("it is refused, or part of a mask")
		}
		text := before + secret + after + secret
		end := io.EOF
		if !regular {
			end = io.ErrUnexpectedEOF
		}
		var chunks [][]byte
		rest := []byte(text)
		for i := 0; len(rest) > 0; i++ {
			n := len(rest)
			if len(cuts) > 0 {
				n = min(n, 1+int(cuts[i%len(cuts)]))
			}
			chunks, rest = append(chunks, rest[:n]), rest[n:]
		}
		got, err := incoming(t, set, &reads{chunks, end})
		if regular == (err != nil) {
			t.Fatalf("a body that ends with %v ends with %v", end, err)
		}
		if strings.Contains(got, secret) {
			t.Fatalf("%q gets through in %q", secret, got)
		}
		if whole := set.Mask(text); regular && got != whole || !strings.HasPrefix(whole, got) {
			t.Fatalf("cut by %v: %q; want %q, or a part of it after an error", cuts, got, whole)
		}
	})
}

func TestIncomingRefused(t *testing.T) {
	t.Parallel()
	set := newSet(t)
	for _, tt := range []struct {
		name   string
		status int
		header http.Header
		method string
		want   string // of the error; "" for none
	}{
		{"gzip", 200, http.Header{"Content-Encoding": {"gzip"}}, "GET", `encoded with "gzip"`},
		{"gzip after identity", 200, http.Header{"Content-Encoding": {"identity, GZIP"}}, "GET", `encoded with "GZIP"`},
		{"a second header", 200, http.Header{"Content-Encoding": {"identity", "br"}}, "GET", `"br"`},
		{"a value as the encoding", 200, http.Header{"Content-Encoding": {value}}, "GET", "[REDACTED:TOKEN]"},
		{"gRPC's own", 200, http.Header{"Grpc-Encoding": {"gzip"}}, "POST", `"gzip"`},
		{"identity", 200, http.Header{"Content-Encoding": {"Identity"}}, "GET", ""},
		{"no body", 200, http.Header{"Content-Encoding": {"gzip"}}, "HEAD", ""},
		{"UTF-16", 200, http.Header{"Content-Type": {"text/plain; charset=UTF-16LE"}}, "GET", "character set"},
		{"Latin 1", 200, http.Header{"Content-Type": {"text/plain; charset=iso-8859-1"}}, "GET", ""},
		{"an upgrade", 101, http.Header{}, "GET", "a protocol that was not asked for"},
		{"a part", 206, http.Header{}, "GET", "a part"},
		{"a change", 226, http.Header{}, "GET", "a change"},
	} {
		r := &http.Response{
			StatusCode: tt.status, Header: tt.header, Body: io.NopCloser(strings.NewReader("x")),
			Request: (&http.Request{Method: tt.method}).WithContext(t.Context()),
		}
		err := set.Incoming(r)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), value)) {
			t.Errorf("%s: Incoming() = %v; want %q", tt.name, err, tt.want)
		}
	}
}

// roundTrip is a function as an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// proxied is a proxy with a Set in front of a server, as the gateway has it, and a client that sends all
// requests to it.
func proxied(t *testing.T, set *Set, host string, http2 bool, handler http.HandlerFunc) (*http.Client, string) {
	t.Helper()
	start := func(h http.Handler) *httptest.Server {
		server := httptest.NewUnstartedServer(h)
		server.EnableHTTP2 = http2
		server.StartTLS()
		t.Cleanup(server.Close)
		return server
	}
	upstream := start(handler)
	at, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) { p.Out.URL.Scheme, p.Out.URL.Host = "https", at.Host },
		Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			if _, err := set.Outgoing(r, host, 443); err != nil {
				return nil, err
			}
			return upstream.Client().Transport.RoundTrip(r)
		}),
		FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			if http2 != (r.ProtoMajor == 2) {
				t.Errorf("the server's answer is %s", r.Proto)
			}
			return set.Incoming(r)
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusBadGateway)
		},
	}
	front := start(&proxy)
	client := front.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client, front.URL
}

// A server that shows what it was sent, in all places that there are, shows no value.
func TestEcho(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		seen := make(chan http.Header, 1)
		client, at := proxied(t, newSet(t), "api.example.com", http2, func(w http.ResponseWriter, r *http.Request) {
			seen <- r.Header.Clone()
			token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
			w.Header().Set("Location", "https://elsewhere.example/?token="+url.QueryEscape(token))
			w.Header().Set("Set-Cookie", "session="+base64.StdEncoding.EncodeToString([]byte(token)))
			w.Header().Set("Trailer", "X-Last")
			w.WriteHeader(http.StatusEarlyHints) // with all of these
			w.WriteHeader(http.StatusFound)
			for i := range token { // a byte a packet
				_, _ = io.WriteString(w, token[i:i+1])
				_ = http.NewResponseController(w).Flush()
			}
			_, _ = io.WriteString(w, "\n")
			w.Header().Set("X-Last", "the token is "+token)
		})
		r, err := http.NewRequestWithContext(t.Context(), "GET", at+"/v1", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+placeholder)
		r.Header.Set("X-Api-Key", "mine")
		r.Header.Set("Accept-Encoding", "gzip")
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			t.Errorf("HTTP/2 %v: an informational response %d gets through: %v", http2, code, h)
			return nil
		}}))
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if err := errors.Join(err, res.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if got := <-seen; got.Get("Authorization") != "Bearer "+value || got.Get("X-Api-Key") != "" || got.Get("Accept-Encoding") != "identity" {
			t.Errorf("the server saw %v", got)
		}
		if string(body) != "[REDACTED:TOKEN]\n" {
			t.Errorf("the client was shown %q", body)
		}
		if got, want := res.Header.Get("Location"), "https://elsewhere.example/?token=[REDACTED:TOKEN]"; got != want {
			t.Errorf("Location: %s; want %s", got, want)
		}
		if got := res.Trailer.Get("X-Last"); got != "the token is [REDACTED:TOKEN]" {
			t.Errorf("trailer %q", got)
		}
		var all bytes.Buffer
		_ = res.Header.Write(&all)
		for _, form := range []string{value, base64.RawStdEncoding.EncodeToString([]byte(value)), url.QueryEscape(value)} {
			if strings.Contains(all.String(), form) {
				t.Errorf("%s is in the headers:\n%s", form, all.String())
			}
		}
	}
}

// A body that breaks off is an error for the client, and not a short body.
func TestBrokenBody(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		client, at := proxied(t, newSet(t), "api.example.com", http2, func(w http.ResponseWriter, r *http.Request) {
			token := r.Header.Get("X-Token")
			_, _ = io.WriteString(w, "a "+token+" "+token[:10])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
		r, err := http.NewRequestWithContext(t.Context(), "GET", at+"/v1", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Token", placeholder)
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if err == nil || string(body) != "a [REDACTED:TOKEN] " {
			t.Errorf("HTTP/2 %v: body %q, %v; want the mask, an error, and no part of the value", http2, body, err)
		}
		_ = res.Body.Close()
	}
}
