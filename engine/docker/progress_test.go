package docker

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxbash/sandboxbash/engine"
)

func TestPullProgress(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, body string
		want       []engine.Progress
		kind       error
		fails      bool
	}{
		{
			name: "good", body: `{"status":"Pulling"}` + "\r\n" + `{"id":"a","status":"Downloading","progressDetail":{"current":1,"total":2}}`,
			want: []engine.Progress{{Status: "Pulling"}, {ID: "a", Status: "Downloading", Current: 1, Total: 2}},
		},
		{name: "failed inside", body: `{"status":"Pulling"}{"errorDetail":{"message":"gone"},"error":"gone"}`, want: []engine.Progress{{Status: "Pulling"}}, fails: true},
		{name: "old form", body: `{"error":"gone"}`, fails: true},
		{name: "denied inside", body: `{"errorDetail":{"code":401,"message":"no"}}`, kind: engine.ErrDenied, fails: true},
		{name: "exit code inside", body: `{"errorDetail":{"code":127,"message":"no"}}`, fails: true},
		{name: "cut", body: `{"status":"Pull`, fails: true},
		{name: "without end", body: `{"status":"` + strings.Repeat("x", maxMessage+1) + `"}`, fails: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := fakeClient(t, map[string]http.HandlerFunc{"POST /v1.41/images/create": answer(200, tt.body)})
			var got []engine.Progress
			err := c.PullImage(t.Context(), "x", func(p engine.Progress) { got = append(got, p) })
			if (err != nil) != tt.fails || tt.kind != nil && !errors.Is(err, tt.kind) {
				t.Errorf("PullImage() = %v; want failure %t, kind %v", err, tt.fails, tt.kind)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLoadedRefs(t *testing.T) {
	t.Parallel()
	c := fakeClient(t, map[string]http.HandlerFunc{"POST /v1.41/images/load": answer(200,
		`{"stream":"Loaded image: a:1\n"}{"status":"Loading layer","id":"x"}{"stream":"Loaded image ID: sha256:00\n"}`)})
	got, err := c.LoadImages(t.Context(), strings.NewReader("x"), nil)
	if diff := cmp.Diff([]string{"a:1", "sha256:00"}, got); diff != "" || err != nil {
		t.Errorf("LoadImages() = %v, %v\n%s", got, err, diff)
	}
}
