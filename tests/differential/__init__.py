"""The service and real kube-schedulers are asked about the same random pods."""
