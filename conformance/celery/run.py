"""Real Celery workers against a broker: each case prints `PASSED name` or `FAILED name: why`.

usage: run.py amqp://guest:guest@HOST:PORT// FOLDER [WORDS...]

With words, only the cases whose names hold one of them.
"""
import contextlib
import os
import signal
import subprocess
import sys
import time
import traceback
import uuid
from datetime import datetime, timedelta, timezone

URL, FOLDER, WORDS = sys.argv[1], os.path.abspath(sys.argv[2]), sys.argv[3:]
os.environ["CELERY_BROKER"], os.environ["CELERY_JOURNAL"] = URL, FOLDER
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from celery import chain, group  # noqa: E402
from celery.exceptions import TaskRevokedError  # noqa: E402
from kombu import Connection  # noqa: E402
import tasks  # noqa: E402
from tasks import app  # noqa: E402

# How long anything may take that takes well under a second when the broker is right.
LONG_S = 30
CASES = []


def case(function):
    CASES.append(function)
    return function


class Worker:
    """A worker process in a process group of its own, so that all of it can be killed at once."""

    def __init__(self, name, queues, concurrency=2, quorum=""):
        self.name = f"{name}-{uuid.uuid4().hex[:6]}@suite"
        path = os.path.join(FOLDER, f"worker-{name}.log")
        log = open(path, "ab")
        words = ["-m", "celery", "-A", "tasks", "worker", "-Q", queues, "-c", str(concurrency),
                 "-n", self.name, "-l", "INFO", "--without-mingle"]
        environment = {**os.environ, "CELERY_QUORUM": quorum}
        self.process = subprocess.Popen([sys.executable, *words], stdout=log, stderr=log, env=environment,
                                        cwd=os.path.dirname(os.path.abspath(__file__)), start_new_session=True)

        def is_ready():
            with open(path) as file:
                return f"{self.name} ready." in file.read()
        wait(is_ready, f"{name} is not ready")

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self):
        """Warm: what runs is finished, what was fetched goes back."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(LONG_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError("the worker did not stop") from None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()


def wait(ready, what, seconds=LONG_S):
    until = time.monotonic() + seconds
    while True:
        found = ready()
        if found:
            return found
        assert time.monotonic() < until, what
        time.sleep(0.05)


def lines(name):
    try:
        with open(os.path.join(FOLDER, name)) as file:
            return file.read().split("\n")[:-1]
    except FileNotFoundError:
        return []


def is_equal(found, expected):
    assert found == expected, f"{found!r} instead of {expected!r}"


def is_revoked(result, otherwise):
    try:
        result.get(timeout=LONG_S)
    except TaskRevokedError:
        return
    raise AssertionError(otherwise)


def fetch(queue):
    """One message of a queue, acknowledged, or None."""
    with Connection(URL) as connection:
        message = connection.default_channel.basic_get(queue, no_ack=True)
        return message


def declare(name, arguments=None):
    with Connection(URL) as connection:
        connection.default_channel.queue_declare(name, durable=True, auto_delete=False, arguments=arguments)


def ready_count(name):
    with Connection(URL) as connection:
        return connection.default_channel.queue_declare(name, passive=True).message_count


# Cases with the worker that serves the queues `celery` and `topics`.

@case
def a_result_comes_back():
    is_equal(tasks.add.delay(2, 3).get(timeout=LONG_S), 5)


@case
def two_hundred_results_come_back():
    results = [tasks.add.delay(i, i) for i in range(200)]
    is_equal([result.get(timeout=LONG_S) for result in results], [2 * i for i in range(200)])


@case
def an_error_comes_back():
    try:
        tasks.fail.delay("on purpose").get(timeout=LONG_S)
    except ValueError as error:
        is_equal(str(error), "on purpose")
    else:
        raise AssertionError("no error")


@case
def an_argument_of_a_megabyte():
    is_equal(tasks.length.delay("x" * 1_000_000).get(timeout=LONG_S), 1_000_000)


@case
def a_chain():
    is_equal(chain(tasks.add.s(1, 2), tasks.add.s(10), tasks.add.s(100)).delay().get(timeout=LONG_S), 113)


@case
def a_group():
    is_equal(group(tasks.add.s(i, 1) for i in range(10)).delay().get(timeout=LONG_S), list(range(1, 11)))


@case
def a_topic_leads_to_its_queue():
    result = tasks.where.apply_async(queue="topics", routing_key="jobs.today.first")
    is_equal(result.get(timeout=LONG_S), ["topics", "jobs.today.first"])


@case
def a_transient_task():
    is_equal(tasks.add.apply_async((1, 1), delivery_mode=1).get(timeout=LONG_S), 2)


@case
def a_retry_with_countdown():
    is_equal(tasks.flaky.delay("flaky", 3).get(timeout=LONG_S), 3)
    times = [float(line.split()[0]) for line in lines("flaky")]
    is_equal([line.split()[1] for line in lines("flaky")], ["0", "1", "2", "3"])
    gaps = [after - before for before, after in zip(times, times[1:])]
    assert all(0.4 < gap < 10 for gap in gaps), f"retried after {gaps}"


@case
def retries_run_out():
    try:
        tasks.hopeless.delay().get(timeout=LONG_S)
    except ValueError as error:
        is_equal(str(error), "for good")
    else:
        raise AssertionError("no error")


@case
def a_countdown():
    begin = time.monotonic()
    is_equal(tasks.add.apply_async((1, 2), countdown=1.5).get(timeout=LONG_S), 3)
    assert time.monotonic() - begin > 1.4, "too early"


@case
def an_eta():
    begin = time.monotonic()
    eta = datetime.now(timezone.utc) + timedelta(seconds=1.5)
    is_equal(tasks.add.apply_async((1, 2), eta=eta).get(timeout=LONG_S), 3)
    assert time.monotonic() - begin > 1.4, "too early"


@case
def tasks_with_a_countdown_hold_up_no_others():
    """The worker raises its prefetch for each of them (a global one, on a classic queue)."""
    delayed = [tasks.add.apply_async((i, 0), countdown=8) for i in range(20)]
    is_equal([tasks.add.delay(i, 1).get(timeout=LONG_S) for i in range(5)], [1, 2, 3, 4, 5])
    assert not any(result.ready() for result in delayed), "others waited"
    is_equal([result.get(timeout=LONG_S) for result in delayed], list(range(20)))


@case
def expired_before_it_ran():
    """The worker looks at `expires`."""
    result = tasks.note.apply_async(("late", "ran"), countdown=1, expires=0.2)
    is_revoked(result, "it ran")
    is_equal(lines("late"), [])


@case
def a_task_is_revoked():
    result = tasks.note.apply_async(("revoked", "ran"), countdown=2)
    wait(lambda: any(app.control.inspect(timeout=1).scheduled().values()), "it is not scheduled")
    app.control.revoke(result.id)
    is_revoked(result, "it ran")
    is_equal(lines("revoked"), [])


@case
def a_running_task_is_ended():
    result = tasks.sleeper.delay(LONG_S)
    wait(lambda: any(app.control.inspect(timeout=1).active().values()), "it does not run")
    app.control.revoke(result.id, terminate=True, signal="SIGKILL")
    is_revoked(result, "it ended well")


@case
def remote_control_answers():
    inspect = app.control.inspect(timeout=2)
    queues = [queue["name"] for queues in inspect.active_queues().values() for queue in queues]
    assert "celery" in queues, f"serves {queues}"
    stats = list(inspect.stats().values())[0]
    assert stats["prefetch_count"] >= 2, f"prefetch of {stats['prefetch_count']}"
    assert "tasks.add" in list(inspect.registered().values())[0]


@case
def a_grown_pool_prefetches_more():
    def prefetch_count():
        return list(app.control.inspect(timeout=2).stats().values())[0]["prefetch_count"]

    before = prefetch_count()
    answer = app.control.pool_grow(2, reply=True, timeout=10)
    assert "ok" in list(answer[0].values())[0], answer
    is_equal(prefetch_count(), before + 2)
    app.control.pool_shrink(2, reply=True, timeout=10)
    is_equal(prefetch_count(), before)
    is_equal([tasks.add.delay(i, 1).get(timeout=LONG_S) for i in range(10)], list(range(1, 11)))


@case
def a_worker_takes_up_and_leaves_a_queue():
    result = tasks.add.apply_async((20, 1), queue="second")
    answer = app.control.add_consumer("second", reply=True, timeout=2)
    assert "ok" in list(answer[0].values())[0], answer
    is_equal(result.get(timeout=LONG_S), 21)
    answer = app.control.cancel_consumer("second", reply=True, timeout=2)
    assert "ok" in list(answer[0].values())[0], answer
    tasks.add.apply_async((1, 1), queue="second")
    wait(lambda: ready_count("second") == 1, "it was taken all the same")


@case
def events_are_seen():
    seen = []
    with Connection(URL) as connection:
        receiver = app.events.Receiver(connection, handlers={"*": lambda event: seen.append(event["type"])})
        with receiver.consumer_context() as (connection, _, _):
            tasks.add.delay(1, 2).get(timeout=LONG_S)
            wanted = {"task-sent", "task-received", "task-started", "task-succeeded"}

            def drained():
                with contextlib.suppress(TimeoutError, OSError):
                    connection.drain_events(timeout=0.2)
                return wanted <= set(seen)
            wait(drained, f"saw {seen}")


# Cases that have workers of their own.

@case
def a_broadcast_reaches_every_worker():
    with Worker("first", "everyone", 1), Worker("second", "everyone", 1):
        tasks.note.apply_async(("everyone", "heard"), queue="everyone")
        wait(lambda: len(lines("everyone")) == 2, "one heard nothing")


@case
def a_task_of_a_killed_worker_runs_again():
    with Worker("victim", "killed", 1) as victim:
        result = tasks.slow.apply_async(("killed", 4), queue="killed")
        wait(lambda: lines("killed"), "it did not begin")
        victim.kill()
    with Worker("heir", "killed", 1):
        is_equal(result.get(timeout=LONG_S), "done")
    is_equal(lines("killed"), ["begin False", "begin True", "end"])


@case
def a_task_of_a_killed_process_runs_again():
    """The worker lives, its child does not: it rejects with requeue."""
    with Worker("parent", "killed", 1) as parent:
        result = tasks.slow.apply_async(("child", 2), queue="killed")
        wait(lambda: lines("child"), "it did not begin")
        children = subprocess.run(["pgrep", "-P", str(parent.process.pid)], capture_output=True, text=True)
        os.kill(int(children.stdout.split()[0]), signal.SIGKILL)
        wait(lambda: "end" in lines("child"), "it did not run again")
        assert result.get(timeout=LONG_S) == "done"
    is_equal(lines("child"), ["begin False", "begin True", "end"])


@case
def tasks_that_were_fetched_go_back():
    with Worker("stopping", "shutdown", 1) as worker:
        tasks.slow.apply_async(("stopping", 2), queue="shutdown")
        wait(lambda: lines("stopping"), "it did not begin")
        results = [tasks.note.apply_async(("returned", str(i)), queue="shutdown") for i in range(10)]
        worker.stop()
    is_equal(lines("stopping"), ["begin False", "end"])
    with Worker("next", "shutdown", 1):
        is_equal([result.get(timeout=LONG_S) for result in results], [str(i) for i in range(10)])
    is_equal(sorted(lines("returned"), key=int), [str(i) for i in range(10)])


@case
def priorities_go_first():
    declare("priorities", {"x-max-priority": 10})
    app.amqp.queues["priorities"].bind(app.connection_for_write().default_channel).declare()
    for text, priority in [("low-1", 1), ("none", None), ("high-1", 9), ("low-2", 1), ("over", 200), ("high-2", 9)]:
        tasks.note.apply_async(("priorities", text), queue="priorities", priority=priority)
    with Worker("priorities", "priorities", 1):
        wait(lambda: len(lines("priorities")) == 6, "not all ran")
    is_equal(lines("priorities"), ["over", "high-1", "high-2", "low-1", "low-2", "none"])


@case
def the_broker_obeys_an_expiration():
    result = tasks.note.apply_async(("expiration", "ran"), queue="expiring", expiration=0.3)
    kept = tasks.note.apply_async(("expiration", "kept"), queue="expiring", expiration=60)
    wait(lambda: ready_count("expiring") == 1, "it did not expire")
    with Worker("expiring", "expiring", 1):
        is_equal(kept.get(timeout=LONG_S), "kept")
    is_equal(lines("expiration"), ["kept"])
    assert not result.ready()


@case
def a_rejected_task_is_a_dead_letter():
    declare("rejected")
    with Worker("reject", "reject", 1):
        result = tasks.rejecting.apply_async(("rejecting", False), queue="reject")
        message = wait(lambda: fetch("rejected"), "no dead letter")
        is_equal(message.properties["correlation_id"], result.id)
        death = message.headers["x-death"][0]
        is_equal([death["reason"], death["queue"], death["count"]], ["rejected", "reject", 1])
        late = tasks.failing_late.apply_async(queue="reject")
        message = wait(lambda: fetch("rejected"), "no dead letter of the failure")
        is_equal(message.properties["correlation_id"], late.id)
    is_equal(lines("rejecting"), ["False"])


@case
def a_task_rejected_with_requeue_runs_again():
    with Worker("requeue", "reject", 1):
        result = tasks.rejecting.apply_async(("requeued", True), queue="reject")
        is_equal(result.get(timeout=LONG_S), "again")
    is_equal(lines("requeued"), ["False", "True"])


@case
def a_full_queue_refuses():
    """With confirms, a publisher learns of it."""
    connection = Connection(URL, transport_options={"confirm_publish": True})
    declare("limited", {"x-max-length": 2, "x-overflow": "reject-publish"})
    with app.amqp.Producer(connection.default_channel) as producer:
        for i in range(2):
            tasks.note.apply_async(("limited", str(i)), queue="limited", producer=producer)
        try:
            tasks.note.apply_async(("limited", "2"), queue="limited", producer=producer, retry=False)
        except Exception as error:
            is_equal(type(error.__cause__).__name__, "MessageNacked")
        else:
            raise AssertionError("it was confirmed")
    connection.release()
    with Worker("limited", "limited", 1):
        wait(lambda: len(lines("limited")) == 2, "not all ran")
    is_equal(lines("limited"), ["0", "1"])


def quorum_cases(kind):
    """Celery delays in the broker when its queue is a quorum queue: in 28 queues with a time to live."""
    script = (
        "import tasks, time\n"
        "from kombu import Connection\n"
        "result = tasks.add.apply_async((1, 2))\n"
        "assert result.get(timeout=30) == 3\n"
        "begin = time.monotonic()\n"
        "results = [tasks.add.apply_async((i, 2), countdown=3) for i in range(20)]\n"
        "assert [r.get(timeout=60) for r in results] == [i + 2 for i in range(20)]\n"
        "took = time.monotonic() - begin\n"
        "assert 1.9 < took < 20, took\n"
    )
    with Worker(f"quorum-{kind}", "quorum", 2, kind):
        environment = {**os.environ, "CELERY_QUORUM": kind}
        ended = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True,
                               cwd=os.path.dirname(os.path.abspath(__file__)), timeout=150)
        assert ended.returncode == 0, ended.stderr.strip().split("\n")[-1]


@case
def delayed_by_the_broker_in_quorum_queues():
    quorum_cases("quorum")


def main():
    def wanted(function):
        return not WORDS or any(word in function.__name__ for word in WORDS)

    chosen = [function for function in CASES if wanted(function)]
    own = [f for f in chosen if CASES.index(f) >= CASES.index(a_broadcast_reaches_every_worker)]
    shared = [f for f in chosen if f not in own]
    with contextlib.ExitStack() as stack:
        if shared:
            stack.enter_context(Worker("common", "celery,topics"))
        for function in shared:
            run(function)
    for function in own:
        run(function)


def run(function):
    name = function.__name__.replace("_", " ")
    try:
        function()
        print(f"PASSED {name}", flush=True)
    except BaseException as error:
        traceback.print_exc()
        text = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"FAILED {name}: {text}", flush=True)


if __name__ == "__main__":
    main()
