"""Flower beside real Celery workers: each case prints `PASSED name` or `FAILED name: why`.

usage: run.py HOST PORT HTTP_PORT FOLDER [SKIPPED CASE]...

Everything is asked of Flower's own API and pages, which asks the workers over the broker, listens to their events,
and reads queues from the broker's HTTP API. The cases build on each other. They work in a vhost with a slash in its
name: of the vhost `/`, Flower asks a path that RabbitMQ does not know.
"""
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import traceback
import urllib.error
import urllib.parse
import urllib.request
import uuid
from base64 import b64encode

HOST, PORT, HTTP_PORT = sys.argv[1:4]
FOLDER, SKIPS = os.path.abspath(sys.argv[4]), sys.argv[5:]
HERE = os.path.dirname(os.path.abspath(__file__))
VHOST = "shop/jobs"
VHOST_IN_PATH = urllib.parse.quote(VHOST, "")
URL = f"amqp://guest:guest@{HOST}:{PORT}/{VHOST}"
BROKER_API = f"http://guest:guest@{HOST}:{HTTP_PORT}/api/"
os.environ["CELERY_BROKER"] = URL
sys.path.insert(0, HERE)

import tasks  # noqa: E402

# How long anything may take. RabbitMQ tells its API of changes every five seconds.
LONG_S = 30
CASES = []


def case(function):
    CASES.append(function)
    return function


def request(method, url, body=None, login=None):
    """The status and the text of an answer."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data, method=method)
    asked.add_header("Content-Type", "application/json")
    if login:
        asked.add_header("Authorization", "Basic " + b64encode(login.encode()).decode())
    try:
        with urllib.request.urlopen(asked, timeout=LONG_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def broker(method, path, body=None):
    """Asks the broker's HTTP API."""
    status, text = request(method, f"http://{HOST}:{HTTP_PORT}/api/{path}", body, "guest:guest")
    assert status < 300, f"{method} {path}: {status} {text}"
    return json.loads(text) if text else None


def wait(ready, what, seconds=LONG_S):
    """Asks until the answer is not empty."""
    until = time.monotonic() + seconds
    while True:
        found = ready()
        if found:
            return found
        assert time.monotonic() < until, f"{what}: {found!r}"
        time.sleep(0.1)


def becomes(look, expected):
    """Looks until it sees what is expected."""
    until = time.monotonic() + LONG_S
    while True:
        found = look()
        if found == expected:
            return
        assert time.monotonic() < until, f"{found!r} instead of {expected!r}"
        time.sleep(0.1)


class Process:
    """A process in a process group of its own, so that all of it can be killed at once."""

    def __init__(self, name, words, environment):
        self.path = os.path.join(FOLDER, f"{name}.log")
        with open(self.path, "ab") as log:
            # Celery warns a root user on every start of a worker.
            environment = {**os.environ, "C_FORCE_ROOT": "1", **environment}
            self.process = subprocess.Popen([sys.executable, "-m", "celery", "-A", "tasks", *words], stdout=log,
                                            stderr=log, cwd=HERE, env=environment, start_new_session=True)

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(LONG_S)

    def is_running(self):
        return self.process.poll() is None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.is_running():
            self.kill()


class Worker(Process):
    """It begins without events, and takes one task at a time."""

    def __init__(self, name, queues):
        self.name = f"{name}-{uuid.uuid4().hex[:6]}@suite"
        super().__init__(f"worker-{name}", ["worker", "-Q", queues, "-c", "1", "-n", self.name, "-l", "INFO"], {})

        def is_ready():
            with open(self.path) as file:
                return f"{self.name} ready." in file.read()
        wait(is_ready, f"{name} is not ready")


class Flower(Process):
    def __init__(self, name, environment=None):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        words = ["flower", "--address=127.0.0.1", f"--port={port}", f"--broker-api={BROKER_API}"]
        super().__init__(name, words, {"FLOWER_UNAUTHENTICATED_API": "true", **(environment or {})})

        def is_ready():
            with contextlib.suppress(OSError):
                return request("GET", f"{self.url}/healthcheck") == (200, "OK")
            return False
        wait(is_ready, f"{name} does not answer")

    def page(self, path):
        status, text = request("GET", self.url + path)
        assert status == 200, f"{path}: {status} {text[:200]}"
        return text

    def get(self, path):
        return json.loads(self.page(path))

    def post(self, path, body=None):
        status, text = request("POST", self.url + path, body if body is not None else {})
        assert status == 200, f"{path}: {status} {text[:200]}"
        return json.loads(text)

    def task(self, task_id, state):
        """What Flower has heard of a task, once it has heard that it is in this state."""
        def look():
            status, text = request("GET", f"{self.url}/api/task/info/{task_id}")
            found = json.loads(text) if status == 200 else {}
            return found if found.get("state") == state else None
        return wait(look, f"the task is not known as {state}")

    def queues(self):
        return {queue["name"]: queue for queue in self.get("/api/queues/length")["active_queues"]}

    def counts(self, queue, *fields):
        found = self.queues().get(queue, {})
        return [found.get(field) for field in fields]

    def rows(self):
        """The table of the page `broker`, without the column that says since when a queue is idle."""
        rows = re.findall(r"<tr id=.*?</tr>", self.page("/broker"), re.S)
        cells = [[re.sub("<.*?>", "", cell, flags=re.S).strip() for cell in re.findall("<td.*?</td>", row, re.S)]
                 for row in rows]
        return {row[0]: row[1:] for row in cells}


def event_queues():
    """The names of the queues that hear of all events. Each worker has another, for what workers say of themselves."""
    status, text = request("GET", f"http://{HOST}:{HTTP_PORT}/api/exchanges/{VHOST_IN_PATH}/celeryev/bindings/source",
                           login="guest:guest")
    assert status in (200, 404), f"{status} {text}"
    bindings = json.loads(text) if status == 200 else []
    return {binding["destination"] for binding in bindings if binding["routing_key"] == "#"}


class Stage:
    """The processes that the cases share."""
    flower = worker = None


@case
def a_worker_appears_with_what_it_says_of_itself():
    def look():
        return Stage.flower.get("/api/workers?refresh=true").get(Stage.worker.name)
    found = wait(lambda: (look() or {}).get("registered") and look(), "the worker does not appear")
    assert "tasks.add" in found["registered"], found["registered"]
    assert {queue["name"] for queue in found["active_queues"]} == {"celery", "held"}, found["active_queues"]
    connected = found["stats"]["broker"]
    assert (connected["hostname"], connected["virtual_host"]) == (HOST, VHOST), connected
    assert found["stats"]["pool"]["max-concurrency"] == 1, found["stats"]["pool"]


@case
def a_page_shows_the_worker():
    page = Stage.flower.page(f"/worker/{Stage.worker.name}")
    assert "held" in page and VHOST in page, "neither its queues nor its broker are there"


@case
def flower_hears_of_all_events():
    """Celery's exchange of events, and Flower's own queue behind it."""
    [name] = wait(event_queues, "no queue")
    queue = broker("GET", f"queues/{VHOST_IN_PATH}/{name}")
    assert name.startswith("celeryev."), name
    assert queue["auto_delete"] and not queue["exclusive"] and not queue["durable"], queue
    assert queue["arguments"] == {"x-expires": 60000, "x-message-ttl": 5000}, queue["arguments"]
    becomes(lambda: broker("GET", f"queues/{VHOST_IN_PATH}/{name}").get("consumers"), 1)
    assert broker("GET", f"exchanges/{VHOST_IN_PATH}/celeryev")["type"] == "topic"


@case
def flower_turns_events_on_and_the_worker_is_alive():
    def is_on():
        with open(Stage.worker.path) as file:
            return "enabled by remote" in file.read()
    wait(is_on, "Flower's order did not reach the worker")
    becomes(lambda: Stage.flower.get("/api/workers?status=true").get(Stage.worker.name), True)


@case
def a_task_that_flower_runs_succeeds():
    told = Stage.flower.post("/api/task/apply/tasks.add", {"args": [2, 3], "timeout": LONG_S})
    assert (told["state"], told["result"]) == ("SUCCESS", 5), told
    found = Stage.flower.task(told["task-id"], "SUCCESS")
    assert (found["name"], found["args"], found["result"]) == ("tasks.add", "[2, 3]", "5"), found
    assert found["worker"] == Stage.worker.name, found
    times = [found[word] for word in ("sent", "received", "started", "succeeded")]
    assert all(times) and found["runtime"] is not None, f"not all of its events came: {times}"


@case
def a_task_that_flower_sends_by_name_succeeds():
    told = Stage.flower.post("/api/task/send-task/tasks.add", {"args": [20, 30], "queue": "held"})
    found = Stage.flower.task(told["task-id"], "SUCCESS")
    assert (found["result"], found["routing_key"]) == ("50", "held"), found


@case
def a_task_that_others_send_succeeds():
    result = tasks.add.delay(4, 5)
    assert result.get(timeout=LONG_S) == 9
    assert Stage.flower.task(result.id, "SUCCESS")["result"] == "9"


@case
def a_task_fails():
    result = tasks.fail.delay("on purpose")
    found = Stage.flower.task(result.id, "FAILURE")
    assert found["exception"] == "ValueError('on purpose')" and "Traceback" in found["traceback"], found


@case
def a_task_is_retried():
    result = tasks.retry_once.delay()
    found = Stage.flower.task(result.id, "SUCCESS")
    assert found["retried"] and found["retries"] == 1, found


@case
def tasks_are_listed_by_their_states():
    failed = Stage.flower.get("/api/tasks?state=FAILURE")
    assert [task["name"] for task in failed.values()] == ["tasks.fail"], failed
    added = Stage.flower.get("/api/tasks?taskname=tasks.add&state=SUCCESS&sort_by=received")
    assert [task["result"] for task in added.values()] == ["5", "50", "9"], added
    types = Stage.flower.get("/api/task/types")["task-types"]
    assert types == ["tasks.add", "tasks.fail", "tasks.retry_once"], types


@case
def two_hundred_tasks_are_all_seen():
    sent = [tasks.add.delay(i, 0).id for i in range(200)]
    for task_id in sent:
        Stage.flower.task(task_id, "SUCCESS")


@contextlib.contextmanager
def a_busy_worker(waiting):
    """The one worker runs a task and has fetched the next; so many more wait in the queue `celery`."""
    path = os.path.join(FOLDER, uuid.uuid4().hex)
    held = tasks.hold.delay(path)
    Stage.flower.task(held.id, "STARTED")
    more = [tasks.add.delay(i, 1) for i in range(waiting + 1)]
    Stage.flower.task(more[0].id, "RECEIVED")
    try:
        yield held, more
    finally:
        with open(path, "w"):
            pass


@case
def lengths_of_queues_are_right():
    fields = ["messages", "messages_ready", "messages_unacknowledged", "consumers"]
    with a_busy_worker(4) as (held, more):
        becomes(lambda: Stage.flower.counts("celery", *fields), [5, 4, 1, 1])
        becomes(lambda: Stage.flower.counts("held", *fields), [0, 0, 0, 1])
        assert Stage.flower.task(more[1].id, "PENDING")["sent"], "the task that waits was not told of"
    for result in [held, *more]:
        Stage.flower.task(result.id, "SUCCESS")
    becomes(lambda: Stage.flower.counts("celery", *fields), [0, 0, 0, 1])


@case
def the_page_of_the_broker_is_right():
    with a_busy_worker(3) as (held, more):
        # Messages, unacknowledged, ready, consumers.
        becomes(lambda: Stage.flower.rows().get("celery", [])[:4], ["4", "1", "3", "1"])
        becomes(lambda: Stage.flower.rows().get("held", [])[:4], ["0", "0", "0", "1"])
    Stage.flower.task(more[-1].id, "SUCCESS")


@case
def the_page_of_the_broker_says_since_when_a_queue_is_idle():
    wait(lambda: re.match(r"\d{4}-\d\d-\d\d", Stage.flower.rows().get("held", [""])[-1]), "it does not")


@case
def a_task_that_waits_is_revoked():
    with a_busy_worker(1) as (_, more):
        assert Stage.flower.post(f"/api/task/revoke/{more[1].id}")["message"] == f"Revoked '{more[1].id}'"
        # The worker has the order before it gets the task.
        inspect = tasks.app.control.inspect([Stage.worker.name])
        wait(lambda: more[1].id in (inspect.revoked() or {}).get(Stage.worker.name, []), "the worker did not hear")
    assert Stage.flower.task(more[1].id, "REVOKED")["revoked"]
    Stage.flower.task(more[0].id, "SUCCESS")


@case
def a_task_that_runs_is_terminated():
    with a_busy_worker(0) as (held, more):
        Stage.flower.post(f"/api/task/revoke/{held.id}?terminate=true")
        Stage.flower.task(held.id, "REVOKED")
        # Another process has taken the place of the one that was terminated.
        Stage.flower.task(more[0].id, "SUCCESS")


@case
def a_worker_takes_another_queue():
    name = urllib.parse.quote(Stage.worker.name)
    told = Stage.flower.post(f"/api/worker/queue/add-consumer/{name}?queue=extra")
    assert told["message"] == "add consumer extra", told
    result = tasks.add.apply_async((6, 7), queue="extra")
    assert Stage.flower.task(result.id, "SUCCESS")["routing_key"] == "extra"

    def seen():
        Stage.flower.get("/api/workers?refresh=true")
        return Stage.flower.counts("extra", "messages", "consumers")
    becomes(seen, [0, 1])


@case
def a_worker_lets_go_of_a_queue():
    name = urllib.parse.quote(Stage.worker.name)
    told = Stage.flower.post(f"/api/worker/queue/cancel-consumer/{name}?queue=extra")
    assert told["message"] == "no longer consuming from extra", told
    result = tasks.add.apply_async((6, 7), queue="extra")
    Stage.flower.task(result.id, "PENDING")
    becomes(lambda: [broker("GET", f"queues/{VHOST_IN_PATH}/extra").get(field)
                     for field in ("messages_ready", "consumers")], [1, 0])


@case
def a_pool_grows():
    Stage.flower.post(f"/api/worker/pool/grow/{urllib.parse.quote(Stage.worker.name)}?n=1")

    def processes():
        found = Stage.flower.get(f"/api/workers?refresh=true&workername={Stage.worker.name}")
        return len(found[Stage.worker.name]["stats"]["pool"]["processes"])
    becomes(processes, 2)


@case
def a_rate_is_limited():
    path = f"/api/task/rate-limit/tasks.fail?workername={Stage.worker.name}&ratelimit=100/m"
    assert Stage.flower.post(path)["message"] == "new rate limit set successfully"


@case
def events_are_counted_in_flowers_metrics():
    def count(kind):
        labels = f'{{task="tasks.fail",type="{kind}",worker="{Stage.worker.name}"}}'
        return re.search(re.escape(f"flower_events_total{labels}") + r" ([\d.]+)", Stage.flower.page("/metrics"))
    for kind in ("task-received", "task-started", "task-failed"):
        assert count(kind) and float(count(kind)[1]) == 1, kind
    online = f'flower_worker_online{{worker="{Stage.worker.name}"}} 1.0'
    assert online in Stage.flower.page("/metrics"), "the worker is not counted as online"


@case
def another_worker_appears_by_itself_and_is_shut_down():
    with Worker("second", "second") as second:
        becomes(lambda: Stage.flower.get("/api/workers?status=true").get(second.name), True)
        wait(lambda: Stage.flower.get("/api/workers?refresh=true").get(second.name), "it is not listed")
        told = Stage.flower.post(f"/api/worker/shutdown/{urllib.parse.quote(second.name)}")
        assert told["message"] == "Shutting down!", told
        second.process.wait(LONG_S)
        becomes(lambda: Stage.flower.get("/api/workers?status=true").get(second.name), False)
    becomes(lambda: Stage.flower.get("/api/workers?status=true").get(Stage.worker.name), True)


@case
def a_second_flower_with_an_exclusive_queue_hears_the_same():
    before = event_queues()
    with Flower("flower-exclusive", {"CELERY_EVENTS": "exclusive"}) as second:
        [name] = wait(lambda: event_queues() - before, "no queue")
        queue = broker("GET", f"queues/{VHOST_IN_PATH}/{name}")
        assert queue["exclusive"] and queue["auto_delete"], queue
        becomes(lambda: broker("GET", f"queues/{VHOST_IN_PATH}/{name}").get("consumers"), 1)
        result = tasks.add.delay(8, 9)
        for flower in (second, Stage.flower):
            assert flower.task(result.id, "SUCCESS")["result"] == "17"
        second.kill()
        becomes(lambda: name in event_queues(), False)
    assert event_queues() == before, "the first Flower's queue went, too"


@case
def nothing_is_left_of_flower():
    Stage.flower.stop()
    becomes(event_queues, set())


def main():
    broker("PUT", f"vhosts/{VHOST_IN_PATH}")
    broker("PUT", f"permissions/{VHOST_IN_PATH}/guest", {"configure": ".*", "write": ".*", "read": ".*"})
    with contextlib.ExitStack() as stack:
        # The worker is there first: it learns of Flower by what Flower asks.
        Stage.worker = stack.enter_context(Worker("first", "celery,held"))
        Stage.flower = stack.enter_context(Flower("flower"))
        for function in CASES:
            if name_of(function) not in SKIPS:
                run(function)


def name_of(function):
    return function.__name__.replace("_", " ")


def run(function):
    name = name_of(function)
    try:
        function()
        print(f"PASSED {name}", flush=True)
    except BaseException as error:
        traceback.print_exc()
        text = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"FAILED {name}: {text}", flush=True)


if __name__ == "__main__":
    main()
