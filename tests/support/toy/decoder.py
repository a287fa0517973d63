"""The toy's decoder would turn lines into rows, in Spark: no test builds them."""
