package serve

import (
	"bytes"
	"net/http/httptest"
	"testing"
)

func TestMaskedResponse(t *testing.T) {
	t.Parallel()
	mask := func(p []byte) []byte { return bytes.ReplaceAll(p, []byte("secret"), []byte("***")) }
	for _, text := range []string{"event: message\ndata: {\"a\":\"secret\"}\n\n", "{\"a\":\"secret\"}", "secret\nsecret"} {
		for n := 1; n <= len(text); n++ {
			r := httptest.NewRecorder()
			w := &maskedResponse{ResponseWriter: r, mask: mask}
			for i := 0; i < len(text); i += n {
				if _, err := w.Write([]byte(text[i:min(i+n, len(text))])); err != nil {
					t.Fatal(err)
				}
			}
			w.end()
			if got, want := r.Body.String(), string(mask([]byte(text))); got != want {
				t.Errorf("%q in writes of %d: %q; want %q", text, n, got, want)
			}
		}
	}
}
