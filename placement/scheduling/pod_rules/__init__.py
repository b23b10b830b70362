"""What pods have to do with the pods that are placed: affinity between pods, and their spread over places."""
