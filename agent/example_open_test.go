package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"time"

	"github.com/sandboxbash/sandboxbash/agent"
	"github.com/sandboxbash/sandboxbash/engine/docker"
	"github.com/sandboxbash/sandboxbash/images"
	"github.com/sandboxbash/sandboxbash/sandbox"
	"github.com/sandboxbash/sandboxbash/tool"
)

// A harness gives its agent the tools bash and job, in a session of its own. It
// needs an engine, so that it is compiled here and not run.
func ExampleOpen() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	client, err := docker.Connect(ctx, docker.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	resolver, err := images.New(client, images.Options{})
	if err != nil {
		log.Fatal(err)
	}
	engine := sandbox.New(docker.NewEngine(client, images.Runner), resolver, sandbox.Options{Ahead: 1})
	defer func() { _ = engine.Close(ctx) }()
	sb, err := engine.Start(ctx, sandbox.Spec{Image: "host", Workspace: sandbox.Workspace{Kind: sandbox.WorkspaceCopy, Dir: "/src"}})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = sb.Stop(context.WithoutCancel(ctx)) }()

	settings := tool.DefaultSettings()
	settings.Async = true
	session, err := agent.Open(sb, agent.SessionOptions{Settings: settings, Tools: []string{"read", "edit"}, Owner: "agent-1"})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = session.Close(ctx) }()
	for _, d := range session.Definitions() {
		fmt.Println("the model has the tool", d.Name)
	}
	go func() {
		_ = session.Deliveries(ctx, func(_ context.Context, finished []tool.Delivery) error {
			fmt.Println(tool.FollowUp(finished)) // into the agent's conversation
			return nil
		})
	}()
	result := session.Call(ctx, "bash", json.RawMessage(`{"command": "make test", "timeout": 600}`), agent.Events{
		Update: func(u tool.Update) { fmt.Println("so far:", u.Text) },
	})
	fmt.Println(result.Text)
}
