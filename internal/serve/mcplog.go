package serve

//lint:file-ignore SA1019 the protocol's latest version has no logging; its clients of today have

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxbash/sandboxbash/tool"
)

// capabilities are what the server can do besides answering requests.
func capabilities() *mcp.ServerCapabilities {
	return &mcp.ServerCapabilities{
		Logging: &mcp.LoggingCapabilities{}, //nolint:staticcheck // see above
		Tools:   &mcp.ToolCapabilities{}, Resources: &mcp.ResourceCapabilities{},
	}
}

// tellFromTheStart sets the log level of a client that does not set one itself, so that
// it gets messages about jobs that have ended.
func tellFromTheStart(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		ss, ok := req.GetSession().(*mcp.ServerSession)
		if err == nil && method == "initialize" && ok {
			_, _ = next(ctx, "logging/setLevel", &mcp.ServerRequest[*mcp.SetLoggingLevelParams]{ //nolint:staticcheck // see above
				Session: ss, Params: &mcp.SetLoggingLevelParams{Level: "info"}, //nolint:staticcheck // see above
			})
		}
		return res, err
	}
}

// logJob sends a client a message about a job that has ended. Even if that fails, the
// job's result is put in front of the next result.
func logJob(ctx context.Context, ss *mcp.ServerSession, d tool.Delivery) {
	_ = ss.Log(ctx, &mcp.LoggingMessageParams{Logger: "jobs", Level: "info", Data: map[string]string{ //nolint:staticcheck // see above
		"event": "job/completed", "job": d.JobID, "label": d.Label, "text": d.Text, "artifact": d.ArtifactID,
	}})
}
