"""Schemas: their XML, checked and resolved into the model."""
