"""Whether this process can do its work, and the words in which load balancers and Kubernetes are told."""
