"""The toy's reference reader would turn lines into rows, in Python: no test verifies them."""
