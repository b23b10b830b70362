"""The commands of `placement`, a module for each subject; `catalog` lists them.

Modules here are imported for the list of commands, so what takes long to import (the database, gunicorn,
the HTTP library) is imported where it is used.
"""
