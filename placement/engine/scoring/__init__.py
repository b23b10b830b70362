"""Scores: how good a host would be for a request, by strategies of Kubernetes.

They are small pure functions for candidates and for pods. Each strategy is a `ScoringRule` in `rule`, listed
in its `RULES`. `parameters` and `order` read parameters. `host_scores.score_hosts` scores many hosts at once
and `host_scores.score_host` a single one, with equal results. Nothing depends on floating point.
Source: scoring.md, "Scoring and ordering of candidates".
"""
