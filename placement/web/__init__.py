"""Pages for people, on the same use cases as the API, behind the same gate.

A page draws the document that the API would answer; `?format=json` and `?format=csv` give that document.
"""
