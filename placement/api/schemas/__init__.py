"""Marshmallow schemas of bodies and queries; fields carry `since` and `until` microversions."""
