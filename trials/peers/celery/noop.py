"""A queue of jobs that do nothing, worked off by Celery: `python noop.py fill|work BROKER_URL JOBS CONCURRENCY`.

`work` prints `first` when the first job is handled and `done` when the last one is.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time

from celery import Celery

WHAT, URL, JOBS, CONCURRENCY = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]

app = Celery("noop", broker=URL)
app.conf.update(
    task_ignore_result=True,
    # What is printed is for whoever measures.
    worker_redirect_stdouts=False,
    worker_prefetch_multiplier=64,
    broker_connection_retry_on_startup=True,
)

BODY = {"order": 4711, "customer": "c-17", "note": "0123456789abcdef" * 3}

# Shared with the processes that Celery forks.
handled = multiprocessing.Value("q", 0)


@app.task(name="noop")
def noop(**_):
    with handled.get_lock():
        handled.value += 1


def fill():
    with app.producer_pool.acquire(block=True) as producer:
        for _ in range(JOBS):
            noop.apply_async(kwargs=BODY, producer=producer)


def watch():
    for count, word in (1, "first"), (JOBS, "done"):
        while handled.value < count:
            time.sleep(0.01)
        print(word, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)


def work():
    threading.Thread(target=watch, daemon=True).start()
    quiet = ["--loglevel=ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    app.worker_main(["worker", f"--concurrency={CONCURRENCY}", *quiet])


fill() if WHAT == "fill" else work()
