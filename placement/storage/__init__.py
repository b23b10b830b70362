"""SQLAlchemy tables, statements, the unit of work, the what-changed feed and error classification.

The only room (with migrations/) that knows SQLAlchemy; it decides nothing but what a row lock or a
conditional update must decide. Promises tested in tests/unit/storage on SQLite and PostgreSQL.
"""
