"""The kit connectors share: transport, tasks, servers, rows."""
