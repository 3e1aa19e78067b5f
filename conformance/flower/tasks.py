"""The Celery application that Flower watches: its settings and its tasks.

CELERY_BROKER is the broker's address. Workers begin without events, as by Celery's default: Flower has to turn
them on. CELERY_EVENTS=exclusive makes the queue of events exclusive.
"""
import os
import time

from celery import Celery
from kombu import Queue

app = Celery("tasks", broker=os.environ["CELERY_BROKER"], backend="rpc://")
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_connection_timeout=10,
    event_queue_exclusive=os.environ.get("CELERY_EVENTS") == "exclusive",
    result_expires=60,
    task_default_queue="celery",
    task_queues=[Queue("celery"), Queue("held")],
    task_send_sent_event=True,
    worker_prefetch_multiplier=1,
    worker_send_task_events=False,
)


@app.task
def add(x, y):
    return x + y


@app.task
def fail(text):
    raise ValueError(text)


@app.task(bind=True, max_retries=1)
def retry_once(self):
    if self.request.retries == 0:
        raise self.retry(countdown=0.1)
    return "at last"


@app.task
def hold(path):
    """Runs until the file is there."""
    while not os.path.exists(path):
        time.sleep(0.05)
    return "let go"
