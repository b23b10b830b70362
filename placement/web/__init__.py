"""Pages for people, on the same use cases as the API, behind the same gate.

What a page shows is the document that the API would answer, drawn; `?format=json` and `?format=csv` give it.
"""
