"""Preemption: carry out the plans of scheduling passes."""
