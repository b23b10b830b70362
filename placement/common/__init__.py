"""Readers that all parts of the product share: documents, manifests, pod identities, probes, secrets."""
