package sink

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandboxbash/sandboxbash/internal/scrub"
)

const benchChunk = 128 << 10

// twentySecrets are secrets as they are found in the field: tokens of 20 to 64
// characters, two of several lines, one of only eight bytes.
func twentySecrets(tb testing.TB) *Secrets {
	tb.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	token := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return base64.RawStdEncoding.EncodeToString(b)[:n]
	}
	var list []Secret
	for i, n := range []int{8, 12, 20, 20, 24, 32, 32, 36, 36, 40, 40, 40, 40, 48, 51, 56, 64, 200} {
		list = append(list, Secret{Name: fmt.Sprintf("TOKEN_%d", i), Value: token(n)})
	}
	for i := range 2 {
		pem := "-----BEGIN PRIVATE KEY-----\n"
		for range 26 {
			pem += token(64) + "\n"
		}
		list = append(list, Secret{Name: fmt.Sprintf("PEM_%d", i), Value: pem + "-----END PRIVATE KEY-----\n"})
	}
	s, warnings, err := NewSecrets(list)
	if err != nil || len(warnings) > 0 {
		tb.Fatalf("NewSecrets() = %v, %v", warnings, err)
	}
	return s
}

// ordinaryOutput looks like a build: words, paths, numbers, lines of 20 to 120
// bytes.
func ordinaryOutput(n int) []byte {
	random := rand.New(rand.NewPCG(3, 4))
	words := []string{
		"compiling", "src/main.rs", "ok", "github.com/example/project/internal/server", "0.123s", "warning:",
		"unused", "variable", "=>", "12:34:56.789", "INFO", "request", "id=4711", "status=200", "the", "of", "and",
		"node_modules/left-pad/index.js", "[100/2000]", "Linking", "build/objects/CMakeFiles/app.dir/main.cc.o",
	}
	var b bytes.Buffer
	for b.Len() < n {
		for range 3 + random.IntN(9) {
			b.WriteString(words[random.IntN(len(words))])
			b.WriteByte(' ')
		}
		b.WriteByte('\n')
	}
	return b.Bytes()[:n]
}

func seqOutput(n int) []byte {
	var b bytes.Buffer
	for i := 1; b.Len() < n; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.Bytes()[:n]
}

func colourOutput(n int) []byte {
	random := rand.New(rand.NewPCG(5, 6))
	var b bytes.Buffer
	for line := range bytes.Lines(ordinaryOutput(n)) {
		fmt.Fprintf(&b, "\x1b[%dm%s\x1b[0m%s", 31+random.IntN(6), line[:len(line)/2], line[len(line)/2:])
	}
	return b.Bytes()[:n]
}

func base64Output(n int) []byte {
	random := rand.New(rand.NewPCG(7, 8))
	var b bytes.Buffer
	line := make([]byte, 57)
	for b.Len() < n {
		for i := range line {
			line[i] = byte(random.Uint32())
		}
		fmt.Fprintln(&b, base64.StdEncoding.EncodeToString(line))
	}
	return b.Bytes()[:n]
}

const benchBytes = 64 << 20

// feed writes data to w as the demux does.
func feed(tb testing.TB, w io.Writer, data []byte) {
	tb.Helper()
	for len(data) > 0 {
		n := min(len(data), benchChunk)
		if _, err := w.Write(data[:n]); err != nil {
			tb.Fatal(err)
		}
		data = data[n:]
	}
}

// BenchmarkCopy is the baseline: the same bytes to a file, and nothing else.
func BenchmarkCopy(b *testing.B) {
	data := ordinaryOutput(benchBytes)
	b.SetBytes(benchBytes)
	b.ReportAllocs()
	name := filepath.Join(b.TempDir(), "copy")
	for b.Loop() {
		f, err := os.Create(name)
		if err != nil {
			b.Fatal(err)
		}
		feed(b, f, data)
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
		if err := os.Remove(name); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPipeline is everything at once: 20 secrets, text, window, artifact.
func BenchmarkPipeline(b *testing.B) {
	secrets := twentySecrets(b)
	for _, in := range []struct {
		name string
		data []byte
	}{
		{"ordinary", ordinaryOutput(benchBytes)},
		{"seq", seqOutput(benchBytes)},
		{"colour", colourOutput(benchBytes)},
		{"base64", base64Output(benchBytes)},
	} {
		for _, stages := range []struct {
			name     string
			secrets  *Secrets
			artifact ArtifactMode
		}{
			{"all", secrets, OnOverflow},
			{"no-secrets", nil, OnOverflow},
			{"no-artifact", secrets, Never},
			{"window-only", nil, Never},
		} {
			b.Run(in.name+"/"+stages.name, func(b *testing.B) {
				store, err := NewStore(b.TempDir(), StoreOptions{})
				if err != nil {
					b.Fatal(err)
				}
				session, err := store.Session("bench")
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(benchBytes)
				b.ReportAllocs()
				for b.Loop() {
					s, err := New(Options{Streams: Merged, Artifact: stages.artifact}, session, stages.secrets)
					if err != nil {
						b.Fatal(err)
					}
					feed(b, s.Stdout(), in.data)
					o := s.Close()
					if stages.artifact == OnOverflow {
						if !o.Artifact.Complete || o.Artifact.Bytes != benchBytes {
							b.Fatalf("artifact %+v", o.Artifact)
						}
						if err := store.Remove("bench", o.Artifact.ID); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
	}
}

func BenchmarkScrub(b *testing.B) {
	secrets := twentySecrets(b)
	data := ordinaryOutput(benchBytes)
	b.SetBytes(benchBytes)
	b.ReportAllocs()
	for b.Loop() {
		sc := scrub.New(secrets, func([]byte, scrub.Origin) {})
		for at := 0; at < len(data); at += benchChunk {
			sc.Write(data[at:at+benchChunk], scrub.Changed)
		}
		sc.Flush()
	}
}

func BenchmarkClean(b *testing.B) {
	data := ordinaryOutput(benchBytes)
	b.SetBytes(benchBytes)
	b.ReportAllocs()
	for b.Loop() {
		c := newCleaner(Text{}, func([]byte, scrub.Origin) {})
		for at := 0; at < len(data); at += benchChunk {
			c.write(data[at:at+benchChunk], scrub.Changed)
		}
		c.flush()
	}
}

// BenchmarkByteWrites is a program that writes single bytes.
func BenchmarkByteWrites(b *testing.B) {
	data := ordinaryOutput(1 << 20)
	s, err := New(Options{Streams: Merged}, nil, twentySecrets(b))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, err := s.Stdout().Write(data[i : i+1]); err != nil {
			b.Fatal(err)
		}
		i = (i + 1) % len(data)
	}
	s.Close()
}

// BenchmarkNew is what a command that prints nothing pays.
func BenchmarkNew(b *testing.B) {
	secrets := twentySecrets(b)
	store, err := NewStore(b.TempDir(), StoreOptions{})
	if err != nil {
		b.Fatal(err)
	}
	session, err := store.Session("bench")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		s, err := New(Options{}, session, secrets)
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}

func BenchmarkNewSecrets(b *testing.B) {
	for b.Loop() {
		twentySecrets(b)
	}
}
