"""A simulated cluster is filled from one stream of requests, once per order, and what came of it is measured.

Every run begins with the same empty hosts and goes through the same arrivals and departures, so runs differ
in nothing but the candidate that is taken. The real service is driven through REST with one worker.
"""
