"""The application that a WSGI server loads under the incumbent's name: `placement.wsgi.api:application`."""

from placement.wsgi import application

__all__ = ["application"]
