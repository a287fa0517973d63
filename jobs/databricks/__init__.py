"""Jobs on Databricks: a bundle to deploy (``databricks.yml``, ``README.md``), and the entry point of its tasks."""
