"""Folds foreign change feeds into silver Delta tables with Spark.

The commands are `silverfold.jobs`. For programs:

- `silverfold.transforms.autocdc`: changes of any DataFrame, applied to a Delta table;
- `silverfold.connectors.wire.sbe`: SBE schemas and messages; in Spark, `silverfold.connectors.sbe.decoder.rows`;
- `silverfold.connectors.sqlitecloud.client.client` and `silverfold.connectors.deephaven.client.client`: clients;
- the connectors' ``server`` rooms: sources in this process, for tests;
- `silverfold.connectors`: how to add a connector.
"""
