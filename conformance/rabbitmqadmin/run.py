#!/usr/bin/env python3
"""RabbitMQ's own command-line tool, unchanged, each invocation with what it must say.

run.py SCRIPT HOST PORT FOLDER: the script, the address of the HTTP API, a folder for files.
Prints `PASSED name` or `FAILED name: why` for each case. The cases build on each other.
"""
import json
import os
import re
import subprocess
import sys

SCRIPT, HOST, PORT, FOLDER = sys.argv[1:5]
DEFINITIONS = os.path.join(FOLDER, "definitions.json")
LOGIN = "-u guest -p guest"


def admin(words, login=LOGIN):
    command = [sys.executable, SCRIPT, "-H", HOST, "-P", PORT] + login.split() + words
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return ended.returncode, ended.stdout + ended.stderr


def run(name, words, says, fails=False, login=LOGIN):
    try:
        code, text = admin(words.split(), login)
        assert (code != 0) == fails, f"exit code {code}: {text.strip()[-200:]}"
        for pattern in [says] if isinstance(says, str) else says:
            assert re.search(pattern, text), f"no {pattern!r} in {text.strip()[-200:]!r}"
        print(f"PASSED {name}", flush=True)
    except Exception as error:  # the next case may work all the same
        print(f"FAILED {name}: {' '.join(str(error).split())}", flush=True)


def main():
    run("show overview", "show overview", ["rabbitmq_version", r"3\.10"])
    run("list vhosts", "list vhosts", r"\| / ")
    run("list users", "list users name tags", r"guest *\| administrator")
    run("list nodes", "list nodes name type", "disc")
    run("list exchanges", "list exchanges name type", r"amq\.topic *\| topic")
    run("list connections, none", "list connections name", "No items|name")
    run("declare vhost", "declare vhost name=shop", "vhost declared")
    run("declare vhost again", "declare vhost name=shop", "vhost declared")
    run("declare user", "declare user name=ann password=secret tags=management", "user declared")
    run("declare user, a tag missing", "declare user name=bob password=x", "mandatory argument", fails=True)
    run("declare permission", "declare permission vhost=shop user=ann configure=.* write=.* read=.*",
        "permission declared")
    run("declare permission, wrong pattern", "declare permission vhost=shop user=ann configure=( write=.* read=.*",
        "(?i)bad|invalid|regular", fails=True)
    run("list permissions", "list permissions user vhost configure", r"ann *\| shop *\| \.\*")
    ann = "-u ann -p secret -V shop"
    run("another user in its vhost", "list exchanges name", r"amq\.direct", login=ann)
    run("another user, wrong password", "list exchanges name", "(?i)access refused|unauthori", True, "-u ann -p wrong")
    run("another user, users", "list users", "(?i)access refused|unauthori", True, ann)
    run("another user, another vhost", "-V / declare queue name=q", "(?i)access refused|unauthori", True,
        "-u ann -p secret")
    run("declare queue", "declare queue name=jobs durable=true", "queue declared")
    run("declare queue again", "declare queue name=jobs durable=true", "queue declared")
    run("declare queue, other properties", "declare queue name=jobs durable=false", "inequivalent arg 'durable'", True)
    run("declare queue, arguments", 'declare queue name=limited arguments={"x-max-length":10}', "queue declared")
    run("declare queue, wrong argument", 'declare queue name=wrong arguments={"x-max-length":-1}', "x-max-length", True)
    run("declare queue, quorum", 'declare queue name=quorum arguments={"x-queue-type":"quorum"}', "queue declared")
    run("declare queue, reserved", "declare queue name=amq.mine", "(?i)reserved|access", True)
    run("list queues", "list queues name durable", r"jobs *\| True")
    run("list queues, sorted", "-S name list queues name", "(?s)jobs.*limited.*quorum")
    run("list queues, columns", "list queues name durable arguments", r"limited *\| True")
    run("list queues, tab separated", "-f tsv list queues name", r"(?m)^jobs$")
    run("list queues, json", "-f raw_json list queues name", r'"name": ?"jobs"')
    run("list queues, long", "-f long list queues name durable", r"name: jobs")
    run("show a queue's columns", "-f kvp list queues name", 'name="jobs"')
    run("declare exchange", "declare exchange name=orders type=topic", "exchange declared")
    run("declare exchange, unknown type", "declare exchange name=odd type=odd", "(?i)unknown exchange type|invalid", True)
    run("declare exchange, other type", "declare exchange name=orders type=fanout", "inequivalent arg 'type'", True)
    run("declare binding", "declare binding source=orders destination=jobs routing_key=eu.#", "binding declared")
    run("declare binding, to an exchange",
        "declare binding source=orders destination=amq.fanout destination_type=exchange routing_key=x", "binding declared")
    run("declare binding, no queue", "declare binding source=orders destination=none routing_key=x", "(?i)not found", True)
    run("list bindings", "list bindings source destination routing_key", r"orders *\| jobs *\| eu\.#")
    run("publish", "publish exchange=orders routing_key=eu.de payload=hello", "Message published$")
    run("publish, no route", "publish exchange=orders routing_key=none payload=hello", "NOT routed")
    run("publish, properties",
        'publish exchange=amq.default routing_key=jobs payload=second properties={"delivery_mode":2,"headers":{"n":1}}',
        "Message published")
    run("get and put back", "get queue=jobs count=1 ackmode=ack_requeue_true", "hello")
    run("get and keep", "get queue=jobs count=1 ackmode=ack_requeue_false", ["hello", "True"])
    run("get and reject", "get queue=jobs count=1 ackmode=reject_requeue_false", "second")
    run("get of an empty queue", "get queue=jobs count=1 ackmode=ack_requeue_true", "No items")
    run("get, no queue", "get queue=none count=1 ackmode=ack_requeue_true", "(?i)not found", True)
    run("purge queue", "purge queue name=jobs", "queue purged")
    run("declare policy",
        'declare policy name=short pattern=^jobs definition={"max-length":10} priority=1 apply-to=queues',
        "policy declared")
    run("declare policy, unknown word", 'declare policy name=odd pattern=x definition={"odd":1}', "recognised", True)
    run("declare policy, wrong value", 'declare policy name=odd pattern=x definition={"max-length":-1}',
        "(?i)valid", True)
    run("list policies", "list policies name pattern apply-to priority", r"short *\| \^jobs *\| queues *\| 1")
    run("declare operator policy",
        'declare operator_policy name=limit pattern=^jobs definition={"max-length":5} apply-to=queues',
        "operator policy declared|operator_policy declared")
    run("list operator policies", "list operator_policies name pattern", r"limit *\| \^jobs")
    run("export", f"export {DEFINITIONS}", "Exported definitions")
    definitions()
    run("delete binding",
        "delete binding source=orders destination_type=queue destination=jobs properties_key=eu.%23", "binding deleted")
    run("delete queue", "delete queue name=jobs", "queue deleted")
    run("delete queue, none", "delete queue name=jobs", "(?i)not found", True)
    run("delete exchange", "delete exchange name=orders", "exchange deleted")
    run("import", f"import {DEFINITIONS}", "Uploaded definitions")
    run("what was imported", "list queues name", ["jobs", "quorum"])
    run("the policies that were imported", "list policies name", "short")
    run("delete policy", "delete policy name=short", "policy deleted")
    run("delete operator policy", "delete operator_policy name=limit", "operator policy deleted|operator_policy deleted")
    run("delete policy, none", "delete policy name=short", "(?i)not found", True)
    run("delete permission", "delete permission vhost=shop user=ann", "permission deleted")
    run("delete user", "delete user name=ann", "user deleted")
    run("delete vhost", "delete vhost name=shop", "vhost deleted")
    run("close connection, none", "close connection name=none", "(?i)not found", True)


def definitions():
    """What was exported has what was declared."""
    try:
        with open(DEFINITIONS, encoding="utf-8") as file:
            found = json.load(file)
        names = {queue["name"] for queue in found["queues"]}
        assert {"jobs", "limited", "quorum"} <= names, names
        assert any(user["name"] == "ann" and user["password_hash"] for user in found["users"])
        assert any(binding["routing_key"] == "eu.#" for binding in found["bindings"])
        print("PASSED what was exported", flush=True)
    except Exception as error:
        print(f"FAILED what was exported: {' '.join(str(error).split())}", flush=True)


if __name__ == "__main__":
    main()
