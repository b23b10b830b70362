"""Keeping a cluster of the service equal to its Kubernetes.

    API server --list, watch--> watching --> store --what changed--> reconciler --PUT, DELETE--> service

One thread per collection watches and writes into the store; the main thread sends what differs. Events of
one object are coalesced because the store holds its latest state only. Manifests are passed on as JSON,
never as model objects, so that fields unknown here survive. Of several processes the one that holds a Lease
sends. Promises are tested in
tests/test_sync_*.py, against a stand-in of the API server.
"""
