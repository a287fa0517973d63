"""Does with the official Python client what an application does, and prints what it saw as JSON.

Run by a Python that has the client: ``client.py CONNECTION_STRING``.
"""

import json
import sys
import time

import sqlitecloud
from sqlitecloud.client import SQLiteCloudClient
from sqlitecloud.datatypes import SQLITECLOUD_PUBSUB_SUBJECT as SUBJECT
from sqlitecloud.pubsub import SQLiteCloudPubSub

ADDRESS = sys.argv[1]
PATIENCE = 120


def connected(options=""):
    return sqlitecloud.connect(ADDRESS + options)


def until(seen, count):
    deadline = time.monotonic() + PATIENCE
    while len(seen) < count and time.monotonic() < deadline:
        time.sleep(0.05)


def listening(kind, name):
    client, seen = SQLiteCloudClient(connection_str=ADDRESS), []
    connection = client.open_connection()
    pubsub = SQLiteCloudPubSub()

    def on_message(_connection, result, _data):
        seen.append(result.get_result() if result is not None else None)

    if kind is SUBJECT.CHANNEL:
        pubsub.create_channel(connection, name, if_not_exists=True)
    pubsub.listen(connection, kind, name, on_message)
    return client, connection, pubsub, seen


def written_and_read():
    connection = connected("&maxrows=100")
    for number in range(3):
        connection.execute("INSERT INTO foo VALUES(?, ?, ?)", (number, f"it's; {number}", None))
    rows = connection.execute("SELECT * FROM foo ORDER BY id").fetchall()
    numbers = "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n LIMIT 4000) "
    every = numbers + "SELECT i, 'text ' || i, i / 2.0 FROM n"
    chunked = connection.execute(every).fetchall()
    whole = connected().execute(every.replace("4000", "40")).fetchall()
    connection.execute("DELETE FROM foo")
    try:
        connection.execute("SELECT nope")
        refused = ""
    except sqlitecloud.Error as error:
        refused = str(error)
    return {"rows": rows, "chunked": [len(chunked), chunked[-1]], "whole": [len(whole), whole[-1]], "refused": refused}


def tables():
    client, connection, pubsub, seen = listening(SUBJECT.TABLE, "foo")
    for number in range(500):
        client.exec_statement("INSERT INTO foo VALUES(?, ?, ?)", (number, "x" * (7 * number), None), connection)
    until(seen, 500)
    ids = [message["payload"][0]["id"] for message in seen]
    texts = sum(len(message["payload"][0]["col1"]) for message in seen)
    pubsub.unlisten(connection, SUBJECT.TABLE, "foo")
    client.exec_query("DELETE FROM foo", connection)
    time.sleep(0.5)
    return {"ids": ids, "texts": texts, "after_unlisten": len(seen) - 500, "envelope": sorted(seen[0])}


def channels():
    client, connection, pubsub, seen = listening(SUBJECT.CHANNEL, "c1")
    pubsub.notify_channel(connection, "c1", "x y")
    until(seen, 1)
    connections = [row["chname"] for row in pubsub.list_connections(connection)]
    pubsub.set_pubsub_only(connection)
    pubsub.notify_channel(client.open_connection(), "c1", "still there")
    until(seen, 2)
    return {"payloads": [message["payload"] for message in seen], "listed": "c1" in connections}


print(json.dumps({"sql": written_and_read(), "tables": tables(), "channels": channels()}))
