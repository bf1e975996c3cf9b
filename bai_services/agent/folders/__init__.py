"""Directories on the agent: homes of kernels, bind mounts, disk usage."""
