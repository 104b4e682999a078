package inject

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/sandboxbash/sandboxbash/internal/scrub"
)

// Incoming masks the secrets in a response to a request that Outgoing was called with: in its headers,
// its body, and its trailers. If that cannot be done it returns an error, and nothing of the response
// may be passed on. The body that it sets returns an error in the same case.
//
// A response of a host that no secret is for stays as it is. Otherwise the length of the body is removed:
// it is not known before the end. The body of a response that switches to WebSocket masks what the server's
// frames hold, and its error is a *FrameError if they cannot be parsed.
func (s *Set) Incoming(r *http.Response) error {
	if s == nil || !mustMask(r.Request) {
		return nil
	}
	if err := s.maskable(r); err != nil {
		return errors.New("secrets cannot be masked in the answer: " + s.Mask(err.Error()))
	}
	s.maskHeader(r.Header)
	s.maskHeader(r.Trailer)
	r.Status = s.Mask(r.Status)
	for _, name := range ofUnmaskedBody {
		r.Header.Del(name)
	}
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	if server, ok := r.Body.(io.ReadWriteCloser); ok && r.StatusCode == http.StatusSwitchingProtocols {
		r.Body = newMaskedFrames(s, server)
		return nil
	}
	r.ContentLength = -1
	r.Body = &maskedBody{set: s, from: r.Body, response: r, text: newText(s.masks)}
	return nil
}

// ofUnmaskedBody are headers that are about the body as the server has sent it, or that offer parts
// of it, see Range in hindering.
var ofUnmaskedBody = []string{"Content-Length", "Content-Md5", "Digest", "Content-Digest", "Repr-Digest", "Accept-Ranges"}

// maskable returns an error if a value could be in a response in a form that is not looked for.
func (s *Set) maskable(r *http.Response) error {
	switch r.StatusCode {
	case http.StatusSwitchingProtocols:
		return switched(r)
	case http.StatusPartialContent:
		return errors.New("it is a part of a document, which was not asked for")
	case http.StatusIMUsed:
		return errors.New("it is a change of a document, which was not asked for")
	}
	if r.Request != nil && r.Request.Method == http.MethodHead || r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	for _, name := range []string{"Content-Encoding", "Grpc-Encoding", "Connect-Content-Encoding"} {
		for _, value := range r.Header.Values(name) {
			for coding := range strings.SplitSeq(value, ",") {
				if coding = strings.TrimSpace(coding); coding != "" && !strings.EqualFold(coding, "identity") {
					return fmt.Errorf("it is encoded with %.32q, although identity was asked for", coding)
				}
			}
		}
	}
	for _, value := range r.Header.Values("Content-Type") {
		if _, params, err := mime.ParseMediaType(value); err == nil && !likeASCII(params["charset"]) {
			return fmt.Errorf("its character set is %.32q", params["charset"])
		}
	}
	return nil
}

// likeASCII says whether the letters of ASCII are themselves in a character set. Nearly all sets in use
// are so.
func likeASCII(charset string) bool {
	charset = strings.ToLower(charset)
	for _, other := range []string{"utf-16", "utf16", "utf-32", "utf32", "utf-7", "utf7", "ucs", "unicode", "csunicode", "iso-10646", "ebcdic", "ibm", "cp037", "cp500", "cp1026", "cp1047"} {
		if strings.HasPrefix(charset, other) {
			return false
		}
	}
	return true
}

// maskHeader masks the values, and removes a header whose name holds a secret.
func (s *Set) maskHeader(h http.Header) {
	for name, values := range h {
		if s.inName(name) {
			delete(h, name)
			continue
		}
		for i, v := range values {
			values[i] = s.Mask(v)
		}
	}
}

// inName says whether the name of a header holds a secret, whose letters may have lost their case.
func (s *Set) inName(name string) bool {
	name = strings.ToLower(name)
	for _, one := range s.secrets {
		if strings.Contains(name, strings.ToLower(one.Value)) {
			return true
		}
	}
	return s.Mask(name) != name
}

// maskedBody is a response's body with the secrets masked. It fails closed: if the server's body ends with
// an error, what may be the start of a value is not passed on; and if a regular end comes after so many
// bytes of a value that they are worth something, they are masked.
type maskedBody struct {
	set      *Set
	from     io.ReadCloser
	response *http.Response // whose trailers are masked when the body has ended

	text *text // masked, and not read so far
	buf  []byte
	err  error // after the text
}

// bodyBuffer is how much is read at once. The scrubber holds back less than that.
const bodyBuffer = 32 << 10 // bytes

// Read returns what is decided so far. It waits for more only if there is nothing.
func (b *maskedBody) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if b.buf == nil {
		b.buf = make([]byte, bodyBuffer)
	}
	for len(b.text.out) == 0 && b.err == nil {
		n, err := b.from.Read(b.buf)
		b.text.write(b.buf[:n]) // before the error: a reader may return both
		if err != nil {
			b.end(err)
		}
	}
	if len(b.text.out) == 0 {
		return 0, b.err
	}
	n := copy(p, b.text.out)
	b.text.out = slices.Delete(b.text.out, 0, n)
	return n, nil
}

// Close closes the server's body.
func (b *maskedBody) Close() error { return b.from.Close() }

// end ends the body. With an error that is not its regular end, what the scrubber holds is dropped.
func (b *maskedBody) end(err error) {
	b.err = err
	if !errors.Is(err, io.EOF) {
		return
	}
	b.text.end()
	b.set.maskHeader(b.response.Trailer)
}

// text masks a text that comes in parts.
type text struct {
	scrub *scrub.Scrubber
	out   []byte // masked; the owner takes it away
}

func newText(masks *scrub.Secrets) *text {
	t := &text{}
	t.scrub = scrub.New(masks, func(p []byte, _ scrub.Origin) { t.out = append(t.out, p...) })
	return t
}

func (t *text) write(p []byte) { t.scrub.Write(p, scrub.Changed) }

// end ends the text. If it ends with so much of a value that it is worth something, that is masked.
func (t *text) end() {
	decided, masked := len(t.out), t.scrub.Masked()
	t.scrub.Flush()
	// What was held and was not masked is the start of a value.
	if t.scrub.Masked() == masked && len(t.out)-decided >= scrub.MinSecret {
		t.out = append(t.out[:decided], "[REDACTED]"...)
	}
}
