"""Copying what a database of OpenStack Placement holds into one of this service, and back."""
