"""Receives notifications with the official Python client, and prints the seconds until it had them all.

Runs under a Python that has the client: ``official_client.py CONNECTION_STRING TABLE COUNT``; an input line starts it.
"""

import json
import sys
import time

from sqlitecloud.client import SQLiteCloudClient
from sqlitecloud.datatypes import SQLITECLOUD_PUBSUB_SUBJECT
from sqlitecloud.pubsub import SQLiteCloudPubSub

ADDRESS, TABLE, COUNT = sys.argv[1], sys.argv[2], int(sys.argv[3])
SILENCE = 5.0

received, last = 0, time.perf_counter()


def on_notification(_connection, result, _data):
    global received, last
    if result is not None:
        result.get_result()
        received, last = received + 1, time.perf_counter()


client = SQLiteCloudClient(connection_str=ADDRESS)
connection = client.open_connection()
SQLiteCloudPubSub().listen(connection, SQLITECLOUD_PUBSUB_SUBJECT.TABLE, TABLE, on_notification)
print("listening", flush=True)
sys.stdin.readline()
began, used = time.perf_counter(), time.process_time()
last = began
while received < COUNT and time.perf_counter() < last + SILENCE:
    time.sleep(0.01)
print(json.dumps({"heard": received, "seconds": last - began, "busy": time.process_time() - used}), flush=True)
