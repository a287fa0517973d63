"""Connectors: one folder for each foreign change-feed protocol, all behind one contract.

The contract is `connectors.base`. A connector is a frozen object with

- ``Options`` and ``TableOptions``: the models of its own settings, strict;
- ``receiver(feed)``: a `Receiver`. Its ``run`` is one connection, an *epoch*: it lands every frame as received, tells
  each frame's stream, kind and boundary, and acknowledges at the source only after `FrameSink.flush`;
- ``decoder(feed)``: a `Decoder`. It turns the frames of one cut into change rows (`transforms.changes`), in Spark;
- ``plain(feed, table)``: a `ReferenceReader`. It turns the same frames, update after update, into plain changes in pure
  Python, and shares nothing with the decoder but the wire codec: ``silverfold verify`` holds silver against them;
- ``watch(feed, table)``: a `SourceSubscription`. It subscribes for itself: ``verify --against-source`` holds silver against that;
- what the engine plans by: ``continuity``, ``net``, ``has_snapshots``, which ``stream`` feeds a table, and what silver
  ``keeps`` of it: the rows that stand, every change, or every row that came.

What a connector may rely on: frames reach its decoder as they were landed, whole updates only, with the control
frames that landed before them; what it yields is applied once. What it must keep: bytes that cannot be read become a
`CutStatistics` with a bad position or a row with ``error``, never an exception; nothing received is dropped.

To add a connector:

1. A folder ``connectors/<name>/``: ``PROTOCOL.md`` (each fact with its certainty), ``messages.py`` and ``protocol.py``
   (pure: bytes in, events out, no socket), ``receiver.py``, ``decode.py``, ``plain.py``, ``server.py`` (an in-process
   source that speaks the protocol truly), ``options.py``, ``connector.py`` with the connector object.
2. One line in `connectors.registry`.
3. A folder ``tests/golden/<name>/`` with byte vectors.

The conformance suite (``tests/connectors/test_conformance.py``) then runs over it.
"""
