package serve

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// addArtifacts offers the full outputs of commands as resources. Where requests belong to no client, an artifact's
// URI names its session, and there is no list: it would be one of all clients.
func (m *MCP) addArtifacts(server *mcp.Server, stateless bool) {
	t := &mcp.ResourceTemplate{
		URITemplate: "artifact://{id}{?offset,limit}", Name: "artifact", Title: "Full output of a command", MIMEType: "text/plain",
		Description: "The full output of a command whose result shows only a part of it; offset and limit, in bytes, take a part.",
	}
	if m.named(stateless) {
		t.URITemplate = "artifact://{session}/{id}{?offset,limit}"
	}
	server.AddResourceTemplate(t, func(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return m.readArtifact(ctx, req, stateless)
	})
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if read, ok := req.GetParams().(*mcp.ReadResourceParams); ok && strings.ContainsFunc(read.URI, func(r rune) bool { return !strconv.IsPrint(r) }) {
				return nil, errNoArtifact // the SDK would send an answer that is not JSON, which is none
			}
			ss, ok := req.GetSession().(*mcp.ServerSession)
			if method != "resources/list" || !ok {
				return next(ctx, method, req)
			}
			res, err := next(ctx, method, req) // it fills in what each list has
			list, ok := res.(*mcp.ListResourcesResult)
			if err != nil || !ok || m.named(stateless) {
				return res, err
			}
			return list, m.listArtifacts(ctx, m.called(ss, stateless), list)
		}
	})
}

// errNoArtifact is the error for a URI that is not printable.
var errNoArtifact = &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "uri: it has characters that cannot be printed"}

// called returns the client's session if it has one already.
func (m *MCP) called(ss *mcp.ServerSession, stateless bool) *Session {
	m.mu.Lock()
	p := m.peers[ss]
	m.mu.Unlock()
	if stateless || m.o.Attach != "" {
		p = m.common
	}
	if p == nil {
		return nil
	}
	_, first := p.sessions.list()
	s, _ := p.sessions.find(first) // the whole id of one
	return s
}

// maxListed bounds a list of artifacts; the last ones are listed.
const maxListed = 1000

// listArtifacts lists those of a session.
func (m *MCP) listArtifacts(ctx context.Context, s *Session, list *mcp.ListResourcesResult) error {
	if s == nil || s.Artifacts == nil {
		return nil
	}
	all, err := s.Artifacts.List(ctx)
	if err != nil {
		return errors.New("the artifacts cannot be listed")
	}
	for _, a := range slices.Backward(all) {
		if len(list.Resources) == maxListed {
			break
		}
		list.Resources = append(list.Resources, &mcp.Resource{
			URI: "artifact://" + a.ID, Name: "artifact " + a.ID, MIMEType: "text/plain", Size: a.Bytes,
		})
	}
	return nil
}

func (m *MCP) readArtifact(ctx context.Context, req *mcp.ReadResourceRequest, stateless bool) (*mcp.ReadResourceResult, error) {
	uri := req.Params.URI
	local, s := uri, (*Session)(nil)
	if rest, ok := strings.CutPrefix(uri, "artifact://"); ok && m.named(stateless) {
		ref, id, _ := strings.Cut(rest, "/")
		if found, err := m.common.sessions.find(ref); err == nil && found != nil && found.ID == ref {
			local, s = "artifact://"+id, found
		}
	} else {
		s = m.called(req.Session, stateless)
	}
	id, from, most, err := parseArtifact(local)
	if err != nil || s == nil || s.Artifacts == nil {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	data, size, err := s.Artifacts.Read(ctx, id, from, most)
	if err != nil {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	c := newContent(data)
	part := &mcp.ResourceContents{
		URI: uri, MIMEType: "text/plain", Text: c.Content, Meta: mcp.Meta{"offset": from, "bytes": len(data), "size": size},
	}
	if c.Encoding != "utf-8" {
		part.MIMEType, part.Text, part.Blob = "application/octet-stream", "", data
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{part}}, nil
}
