package inject

import (
	"crypto/sha1" //nolint:gosec // RFC 6455 wants it, and no secret depends on it
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strings"
)

// ErrUpgrade is returned for a request that asks a host that secrets are for to switch to another protocol, in
// any way but that of WebSocket.
var ErrUpgrade = errors.New("a host that secrets are for can be asked for no other protocol than WebSocket, version 13, with GET: answers could not be masked")

const (
	webSocket        = "websocket"
	webSocketVersion = "13"
	webSocketKey     = 16 // bytes
	// webSocketGUID is appended to the key by servers that speak WebSocket, RFC 6455, section 1.3.
	webSocketGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
)

// asksWebSocket says whether a request asks for WebSocket. It returns ErrUpgrade if it asks for another protocol
// than that and HTTP/2, or in a form that servers read in different ways.
func asksWebSocket(r *http.Request) (bool, error) {
	upgrade := r.Header.Values("Upgrade")
	if len(upgrade) == 0 || len(upgrade) == 1 && strings.EqualFold(upgrade[0], "h2c") {
		return false, nil
	}
	key, err := base64.StdEncoding.DecodeString(one(r.Header, "Sec-Websocket-Key"))
	if len(upgrade) > 1 || !strings.EqualFold(upgrade[0], webSocket) || r.Method != http.MethodGet || r.ContentLength != 0 ||
		one(r.Header, "Sec-Websocket-Version") != webSocketVersion || err != nil || len(key) != webSocketKey {
		return false, ErrUpgrade
	}
	return true, nil
}

// switched returns an error if an answer that switches protocols is not that of a server that speaks WebSocket
// without extensions. Otherwise what the session sends afterwards could be requests.
func switched(r *http.Response) error {
	if r.Request == nil || !strings.EqualFold(one(r.Request.Header, "Upgrade"), webSocket) || !strings.EqualFold(one(r.Header, "Upgrade"), webSocket) {
		return errors.New("it switches to a protocol that was not asked for")
	}
	sum := sha1.Sum([]byte(one(r.Request.Header, "Sec-Websocket-Key") + webSocketGUID)) //nolint:gosec // see above
	if one(r.Header, "Sec-Websocket-Accept") != base64.StdEncoding.EncodeToString(sum[:]) {
		return errors.New("it does not accept a WebSocket in the way of a server that speaks it")
	}
	if len(r.Header.Values("Sec-Websocket-Extensions")) > 0 {
		return errors.New("it uses an extension of WebSocket that was not asked for")
	}
	if _, ok := r.Body.(io.ReadWriteCloser); !ok {
		return errors.New("it switches protocols on a connection that cannot be written to")
	}
	return nil
}

// one returns the value of a header that has one; "" if it has none or several.
func one(h http.Header, name string) string {
	if values := h.Values(name); len(values) == 1 {
		return values[0]
	}
	return ""
}
