"""Scores: how good a host would be for a request, by strategies that Kubernetes knows.

Small pure functions, the same for candidates and for pods. Each strategy is one module with a `Rule` and one
line in `registry`. `shape`, `weights`, `strategy` and `order` read parameters; `vectors` scores many hosts at
once and `host` a single one, with the same result. Nothing depends on floating point.
Source: scoring.md, "Scoring and ordering of candidates".
"""
