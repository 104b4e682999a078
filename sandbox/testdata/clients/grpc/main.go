// Command grpc is a client of gRPC's service of health checks, at the address of its argument. It prints
// what a unary call, a stream of the server and an error in the trailers bring.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func run(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(nil)))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	client := grpc_health_v1.NewHealthClient(conn)
	answer, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		return err
	}
	fmt.Println("unary", answer.GetStatus())
	stream, err := client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{Service: "changing"})
	if err != nil {
		return err
	}
	for range 2 {
		if answer, err = stream.Recv(); err != nil {
			return err
		}
		fmt.Println("stream", answer.GetStatus())
		// The second answer comes because of this call.
		_, err = client.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "change"})
		if status.Code(err) != codes.NotFound {
			return fmt.Errorf("the check of an unknown service: %w", err)
		}
	}
	fmt.Println("trailers", status.Code(err))
	return nil
}
