"""SQLAlchemy tables, statements, the unit of work, the what-changed feed and error classification.

Statements on a noun of the API are with its feature; here nothing is decided but what a row lock or a
conditional update must decide. Promises tested in tests/unit/storage on SQLite and PostgreSQL.
"""
