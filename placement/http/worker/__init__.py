"""The gunicorn worker: an event loop that receives requests, and lanes of threads that answer them."""
