"""The Celery application of the suite: its settings and its tasks.

CELERY_BROKER is the broker's address, CELERY_JOURNAL a folder. Tasks write what they did to a file of their
case there, one line at a time, since a worker that is killed cannot tell.
"""
import os
import time

from celery import Celery
from celery.exceptions import Reject
from kombu import Exchange, Queue
from kombu.common import Broadcast

app = Celery("tasks", broker=os.environ["CELERY_BROKER"], backend="rpc://")
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_connection_timeout=10,
    result_expires=60,
    task_default_queue="celery",
    worker_prefetch_multiplier=1,
    worker_send_task_events=True,
    task_send_sent_event=True,
    task_queues=[
        Queue("celery"),
        Queue("second"),
        Queue("killed", durable=True),
        Queue("priorities", queue_arguments={"x-max-priority": 10}),
        Queue("expiring"),
        Queue("reject", queue_arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "rejected"}),
        Queue("limited", queue_arguments={"x-max-length": 2, "x-overflow": "reject-publish"}),
        Queue("topics", Exchange("topics", type="topic"), routing_key="jobs.#"),
        Queue("shutdown"),
        Broadcast("everyone"),
    ],
)

if os.environ.get("CELERY_QUORUM"):
    # Celery then delays in the broker: queues whose messages expire into each other.
    app.conf.update(
        task_default_queue="quorum",
        task_default_queue_type="quorum",
        task_default_exchange="quorum",
        task_default_exchange_type="topic",
        task_queues=[Queue("quorum", Exchange("quorum", type="topic"), routing_key="quorum",
                           queue_arguments={"x-queue-type": "quorum"})],
        broker_native_delayed_delivery_queue_type=os.environ["CELERY_QUORUM"],
        worker_detect_quorum_queues=True,
    )


def journal(case, text):
    """One write per line: whole lines, whoever else writes and whatever kills us next."""
    path = os.path.join(os.environ["CELERY_JOURNAL"], case)
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, f"{text}\n".encode())
    os.close(file)


@app.task
def add(x, y):
    return x + y


@app.task
def fail(text):
    raise ValueError(text)


@app.task
def length(text):
    return len(text)


@app.task
def note(case, text):
    journal(case, text)
    return text


@app.task(bind=True, max_retries=3)
def flaky(self, case, wanted):
    """Fails until it has been tried so often."""
    journal(case, f"{time.time()} {self.request.retries}")
    if self.request.retries < wanted:
        raise self.retry(countdown=0.5)
    return self.request.retries


@app.task(bind=True, max_retries=1)
def hopeless(self):
    raise self.retry(countdown=0.1, exc=ValueError("for good"))


@app.task(bind=True, acks_late=True, reject_on_worker_lost=True)
def slow(self, case, seconds):
    journal(case, f"begin {self.request.delivery_info['redelivered']}")
    time.sleep(seconds)
    journal(case, "end")
    return "done"


@app.task
def sleeper(seconds):
    time.sleep(seconds)
    return seconds


@app.task(bind=True, acks_late=True)
def rejecting(self, case, requeue):
    journal(case, f"{self.request.delivery_info['redelivered']}")
    if self.request.delivery_info["redelivered"]:
        return "again"
    raise Reject("not today", requeue=requeue)


@app.task(acks_late=True, acks_on_failure_or_timeout=False)
def failing_late():
    raise ValueError("and not acknowledged")


@app.task(bind=True)
def where(self):
    info = self.request.delivery_info
    return [info["exchange"], info["routing_key"]]
