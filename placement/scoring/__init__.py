"""Scores: how good a host would be for a request, by strategies that Kubernetes knows.

Small pure functions: `shape`, `weights`, `strategy` and `order` read parameters; `host` scores one host on
plain integers and is the reference; `vectors` scores many at once and must agree with it. A new strategy is
one module with a scalar and a vector function and one line in `registry`. Nothing depends on floating
point. Source: scoring.md, "Scoring and ordering of candidates".
"""
