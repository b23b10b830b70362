"""Keeping a cluster of the service as its Kubernetes is.

    API server --list, watch--> watching --> picture --what changed--> mirror --PUT, DELETE--> service

One thread per collection watches and draws into the picture; the main thread sends what differs. Events of
one object are coalesced because the picture holds its latest state only. Manifests are passed on as JSON,
never as model objects, so that unknown fields survive. Promises are tested in
tests/test_sync_*.py, against a stand-in of the API server.
"""
