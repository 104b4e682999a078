package docker

import (
	"net/http"
	"testing"
)

// TestEmptyAnswers: an answer that is a document and says nothing is never a panic.
func TestEmptyAnswers(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{}`, `null`, `[]`, `[null]`, `[{}]`, `{"Volumes":[null,{}]}`, `{"Id":"x","Config":null,"State":null,"HostConfig":null,"Mounts":[{}]}`} {
		c := fakeClient(t, map[string]http.HandlerFunc{"/": answer(http.StatusOK, body)})
		for name, q := range queries(t, c) {
			func() {
				defer func() {
					if p := recover(); p != nil {
						t.Errorf("%s answered with %s panics: %v", name, body, p)
					}
				}()
				_ = q.call()
			}()
		}
	}
}
