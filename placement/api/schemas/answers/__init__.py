"""Marshmallow schemas of answers: nothing is loaded with them, they tell callers what they get."""
