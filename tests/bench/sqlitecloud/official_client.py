"""Hears notifications with the official Python client, and prints after how many seconds it had them all.

Run by a Python that has the client: ``official_client.py CONNECTION_STRING TABLE COUNT``, and told to begin by a line.
"""

import json
import sys
import time

from sqlitecloud.client import SQLiteCloudClient
from sqlitecloud.datatypes import SQLITECLOUD_PUBSUB_SUBJECT
from sqlitecloud.pubsub import SQLiteCloudPubSub

ADDRESS, TABLE, COUNT = sys.argv[1], sys.argv[2], int(sys.argv[3])
SILENCE = 5.0

heard, last = 0, time.perf_counter()


def hear(_connection, result, _data):
    global heard, last
    if result is not None:
        result.get_result()
        heard, last = heard + 1, time.perf_counter()


client = SQLiteCloudClient(connection_str=ADDRESS)
connection = client.open_connection()
SQLiteCloudPubSub().listen(connection, SQLITECLOUD_PUBSUB_SUBJECT.TABLE, TABLE, hear)
print("listening", flush=True)
sys.stdin.readline()
began, used = time.perf_counter(), time.process_time()
last = began
while heard < COUNT and time.perf_counter() < last + SILENCE:
    time.sleep(0.01)
print(json.dumps({"heard": heard, "seconds": last - began, "busy": time.process_time() - used}), flush=True)
