// A queue of jobs that do nothing, worked off by River: `river fill|work DATABASE_URL JOBS CONCURRENCY`.
//
// `work` prints `first` when the first job is handled and `done` when the last one is.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// What a job carries.
type Noop struct {
	Order    int    `json:"order"`
	Customer string `json:"customer"`
	Note     string `json:"note"`
}

func (Noop) Kind() string { return "noop" }

type worker struct {
	river.WorkerDefaults[Noop]
	handled *atomic.Int64
	jobs    int64
	done    chan struct{}
}

func (w *worker) Work(context.Context, *river.Job[Noop]) error {
	switch w.handled.Add(1) {
	case 1:
		fmt.Println("first")
	case w.jobs:
		close(w.done)
	}
	return nil
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	ctx := context.Background()
	jobs, _ := strconv.ParseInt(os.Args[3], 10, 64)
	concurrency, _ := strconv.Atoi(os.Args[4])
	pool, err := pgxpool.New(ctx, os.Args[2])
	check(err)
	defer pool.Close()
	if os.Args[1] == "fill" {
		fill(ctx, pool, jobs)
		return
	}
	done := make(chan struct{})
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{handled: new(atomic.Int64), jobs: jobs, done: done})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: concurrency}},
		Workers:           workers,
		FetchCooldown:     time.Millisecond,
		FetchPollInterval: 50 * time.Millisecond,
		Logger:            slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	check(err)
	check(client.Start(ctx))
	<-done
	fmt.Println("done")
	check(client.Stop(ctx))
}

func fill(ctx context.Context, pool *pgxpool.Pool, jobs int64) {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	check(err)
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	check(err)
	client, err := river.NewClient[pgx.Tx](riverpgxv5.New(pool), &river.Config{})
	check(err)
	const batch = 5000
	job := Noop{4711, "c-17", "0123456789abcdef0123456789abcdef0123456789abcdef"}
	for left := jobs; left > 0; {
		count := min(left, batch)
		params := make([]river.InsertManyParams, count)
		for i := range params {
			params[i] = river.InsertManyParams{Args: job}
		}
		_, err := client.InsertManyFast(ctx, params)
		check(err)
		left -= count
	}
}
