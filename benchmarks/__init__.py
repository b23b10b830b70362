"""Measurements beside the incumbent: ratios of medians in one interleaved run, never asserted in a test."""
