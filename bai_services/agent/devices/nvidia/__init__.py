"""NVIDIA GPUs: discovery, MIG, MPS and sharing."""
