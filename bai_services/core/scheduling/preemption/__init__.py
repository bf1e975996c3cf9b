"""Preemption: who may be stopped for whom, and plans to do so."""
