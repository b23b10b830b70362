"""Faults that take long to show: run by hand or at night."""
