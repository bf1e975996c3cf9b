"""Stores of model cards and of imports of models."""
