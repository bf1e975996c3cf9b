"""`bai-gateway`: HTTP proxy in front of the replicas of all endpoints.

It is stateless: it gets its routes from the manager, and reports load and usage to the manager.
"""
