// A queue of jobs that do nothing, worked off by asynq: `asynq fill|work ADDRESS JOBS CONCURRENCY`.
//
// `work` prints `first` when the first job is handled and `done` when the last one is.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/hibiken/asynq"
)

const body = `{"order":4711,"customer":"c-17","note":"0123456789abcdef0123456789abcdef0123456789abcdef"}`

func main() {
	address := os.Args[2]
	jobs, _ := strconv.ParseInt(os.Args[3], 10, 64)
	concurrency, _ := strconv.Atoi(os.Args[4])
	redis := asynq.RedisClientOpt{Addr: address, PoolSize: 64}
	if os.Args[1] == "fill" {
		fill(redis, jobs)
		return
	}
	var handled atomic.Int64
	done := make(chan struct{})
	mux := asynq.NewServeMux()
	mux.HandleFunc("noop", func(context.Context, *asynq.Task) error {
		switch handled.Add(1) {
		case 1:
			fmt.Println("first")
		case jobs:
			close(done)
		}
		return nil
	})
	server := asynq.NewServer(redis, asynq.Config{Concurrency: concurrency, LogLevel: asynq.ErrorLevel})
	if err := server.Start(mux); err != nil {
		panic(err)
	}
	<-done
	fmt.Println("done")
	server.Shutdown()
}

func fill(redis asynq.RedisClientOpt, jobs int64) {
	client := asynq.NewClient(redis)
	defer client.Close()
	var next atomic.Int64
	var group sync.WaitGroup
	for range 32 {
		group.Add(1)
		go func() {
			defer group.Done()
			for next.Add(1) <= jobs {
				if _, err := client.Enqueue(asynq.NewTask("noop", []byte(body))); err != nil {
					panic(err)
				}
			}
		}()
	}
	group.Wait()
}
