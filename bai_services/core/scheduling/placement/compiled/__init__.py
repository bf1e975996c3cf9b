"""Compiled functions of placement: choose the best agent and devices, on integer columns."""
