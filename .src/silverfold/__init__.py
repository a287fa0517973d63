"""Folds foreign change feeds into silver Delta tables with Spark."""
