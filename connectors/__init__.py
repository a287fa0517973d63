"""Connectors: one folder for each foreign change-feed protocol, all behind one contract.

The contract is `connectors.base`, with `connectors.frames`. A connector is a `Connector[Options, Table]`: it states
what is its own, and takes the neutral defaults for the rest. It has

- ``Options`` and ``TableOptions``: the strict models of its own settings. Its feeds are a ``Feed`` of these two types
  (``options`` names it), so no room checks what its settings are;
- ``receiver(feed)``: a `Receiver`. Its ``run`` is one connection, an *epoch*: it lands every frame as received, with
  the frame's stream, kind and boundary, and acknowledges at the source only after `FrameSink.flush`;
- ``decoder(feed)``: a `Decoder`. It turns the frames of one cut into change rows (`transforms.changes`), in Spark;
- ``reference(feed, table)``: a `ReferenceReader`. It turns the same frames, update by update, into changes in pure
  Python, and shares with the decoder the wire codec and the meaning of settings alone: ``silverfold verify`` compares
  silver with them;
- ``subscribe(feed, table)``, if its source has snapshots: a `SourceSubscription`, independent of the receiver:
  ``verify --against-source`` compares silver with it;
- ``replay(feed, table)``, if its source has none and keeps its records: a `SourceReplay`, for the same;
- the properties the engine plans by: ``continuity``, ``folds``, ``has_snapshots``, the ``stream`` that feeds a table,
  and its ``table_kind``: current rows, every change, or every received row.

A connector may rely on this: frames reach its decoder as they were landed, in complete updates only, with the control
frames that landed before them; the changes it yields are applied once. In return, undecodable bytes become a
`CutStatistics` with a bad position or a row with ``error``, never an exception; no received frame is dropped.

To add a connector:

1. A folder ``connectors/<name>/``: ``PROTOCOL.md`` (each fact with its certainty), and its rooms, each a module or a
   package: ``options`` (models of its settings), ``protocol`` (pure: bytes in, events out, no socket), ``transports``
   (sockets that client, server and receiver share, if there are several kinds), ``client`` (a stand-alone client that
   knows no feed, if users need one), ``address`` (what a feed's settings connect to, if ``host:port`` does not say it),
   ``receiver``, ``decoder``, ``reference``, ``server`` (an in-process source that implements the protocol faithfully),
   ``connector`` (the connector object). What they share is `connectors.common`.
2. One line in `connectors.registry`.
3. A folder ``tests/golden/<name>/`` with byte vectors, and ``source.py``: a `GoldenSource` that sends some of them.
4. What it alone needs: an extra of its name in ``pyproject.toml``, part of ``all``. Import such packages only in rooms
   that settings do not load.
5. One line in the table of ``README.md``.

Nothing else names it. ``silverfold simulate <name>`` is `Connector.simulator`. The section of ``conf/README.md`` comes
from the docstrings of its settings: run ``python -m tests.settings_page``.

The conformance suite (``tests/connectors/test_conformance.py``) then runs over it: what lands of the golden source does
not depend on chunks, any bytes of it land or are refused, a cancelled receiver lands what had arrived, and decoder and
reference reader agree. The smallest connector is ``tests/support/toy``.
"""
