"""`bai-gateway`: HTTP proxy in front of the replicas of all endpoints.

It has no state of its own: routes come from the manager, and it reports load and usage to it.
"""
