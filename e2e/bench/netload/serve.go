package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

// serve serves HTTP, HTTPS and echoes at three ports of an address, prints them and its certificate in base64,
// and ends with standard input.
func serve(address string) error {
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	var listeners [3]net.Listener
	for i := range listeners {
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort(address, "0"))
		if err != nil {
			return err
		}
		listeners[i] = l
		fmt.Println(l.Addr().(*net.TCPAddr).Port)
	}
	fmt.Println(base64.StdEncoding.EncodeToString(certificate.Certificate[0]))
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello\n") })
	mux.HandleFunc("/bytes", bytes)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	secure := tls.NewListener(listeners[1], &tls.Config{Certificates: []tls.Certificate{certificate}}) // HTTP/1.1 alone
	go func() { _ = server.Serve(listeners[0]) }()
	go func() { _ = server.Serve(secure) }()
	go echoes(listeners[2])
	_, err = io.Copy(io.Discard, os.Stdin) // the process ends with it, and all connections
	return err
}

// bytes answers with as many bytes as the query's n says, and at most rate of them a second if it has one.
func bytes(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.URL.Query().Get("n"), 10, 64)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	perSecond, _ := strconv.ParseFloat(r.URL.Query().Get("rate"), 64)
	begin, sent := time.Now(), 0.0
	for block := make([]byte, 128<<10); n > 0; n -= int64(len(block)) {
		if n < int64(len(block)) {
			block = block[:n]
		}
		if _, err := w.Write(block); err != nil {
			return
		}
		if sent += float64(len(block)); perSecond > 0 {
			time.Sleep(time.Duration(sent/perSecond*float64(time.Second)) - time.Since(begin))
		}
	}
}

func echoes(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_, _ = io.CopyBuffer(struct{ io.Writer }{conn}, conn, make([]byte, 64))
		}()
	}
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour), DNSNames: []string{"web.test", "read.test"}}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
