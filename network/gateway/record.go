package gateway

import (
	"fmt"
	"time"

	"github.com/sandboxbash/sandboxbash/network"
)

// Kind says what a Record is about.
type Kind string

// Kinds.
const (
	KindName       Kind = "name"       // a name that was refused or could not be looked up
	KindConnection Kind = "connection" // bytes, carried unread
	KindRequest    Kind = "request"    // an HTTP request
)

// Reasons of a Gateway's own, besides those of package network.
const (
	ReasonLimit     network.Reason = "limit"      // more connections, requests, bytes or time than the limits allow
	ReasonBody      network.Reason = "body-size"  // the body of the request is longer than the limits allow
	ReasonRepeats   network.Reason = "repeats"    // the record stands for Count others, that came too fast to be recorded one by one
	ReasonPortTaken network.Reason = "port-taken" // a process of the session listens where the gateway would
	ReasonHost      network.Reason = "other-host" // the request, or the first message of TLS, names another host than the connection
	ReasonUnread    network.Reason = "unread"     // the rule is for some requests, and the connection cannot be read
	ReasonMethod    network.Reason = "method"     // TRACE, which shows what the gateway has added; CONNECT where there is no proxy
	ReasonPlain     network.Reason = "plaintext"  // the connection must be read, and speaks neither TLS nor HTTP, or HTTP on port 443
	ReasonUntrusted network.Reason = "untrusted"  // the connection must be read, and its client does not take the session's certificate
)

// Record is one connection, request or refused name of a session, once it has ended.
type Record struct {
	Time     time.Time      `json:"time"` // of its start
	Kind     Kind           `json:"kind"`
	Command  string         `json:"command,omitempty"` // id of the command that made it; "" if that is not known
	Host     string         `json:"host"`              // canonical; "" if the session did not say
	Port     int            `json:"port,omitempty"`
	Address  string         `json:"address,omitempty"` // that was dialled
	Method   string         `json:"method,omitempty"`
	Path     string         `json:"path,omitempty"` // without the query
	Allowed  bool           `json:"allowed"`
	Rule     string         `json:"rule,omitempty"`    // that decided; "" if none did
	Reason   network.Reason `json:"reason,omitempty"`  // of a refusal
	Why      string         `json:"why,omitempty"`     // the reason in words
	Ask      string         `json:"ask,omitempty"`     // the rule that would allow it; "" if none may
	Status   int            `json:"status,omitempty"`  // of an HTTP response
	Secrets  []string       `json:"secrets,omitempty"` // names of those that were put into the request
	Sent     int64          `json:"sent"`              // bytes from the session
	Received int64          `json:"received"`          // bytes to the session
	Elapsed  time.Duration  `json:"-"`
	Err      string         `json:"error,omitempty"` // why an allowed one failed
	Count    int            `json:"count,omitempty"` // of the records that this one stands for; see ReasonRepeats
}

// refused records a refusal.
func (g *Gateway) refused(r Record, verdict network.Verdict) {
	r.refuse(verdict)
	r.Elapsed = time.Since(r.Time)
	g.record(r)
}

func (r *Record) refuse(verdict network.Verdict) {
	r.Allowed, r.Rule, r.Reason, r.Ask, r.Why = false, ruleText(verdict), verdict.Reason, verdict.Ask, why(verdict)
}

func ruleText(verdict network.Verdict) string {
	if verdict.Rule.IsZero() {
		return ""
	}
	return verdict.Rule.String()
}

// why returns why something is refused, in words.
func why(verdict network.Verdict) string {
	switch verdict.Reason { //nolint:exhaustive // the others are package network's, which has words for them
	case ReasonHost:
		return fmt.Sprintf("the connection to %s names another host: %s", verdict.Host, verdict.Detail)
	case ReasonMethod:
		return verdict.Host + " cannot be asked with " + verdict.Detail
	case ReasonUnread:
		return fmt.Sprintf("rules for %s:%d are for some requests alone, and %s", verdict.Host, verdict.Port, verdict.Detail)
	case ReasonPlain:
		return fmt.Sprintf("requests to %s:%d are read, and this connection speaks no protocol that can be", verdict.Host, verdict.Port)
	case ReasonUntrusted:
		return fmt.Sprintf("requests to %s:%d are read, and the program does not accept the certificate of the session for it: %s. "+
			"It must trust the file /run/sandboxbash-ca/bundle.pem, or the user must exclude the host from being read", verdict.Host, verdict.Port, verdict.Detail)
	case ReasonLimit, ReasonBody:
		return limitText(verdict)
	case ReasonPortTaken:
		return "a program of the session listens there"
	}
	return verdict.String()
}
