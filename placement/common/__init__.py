"""What every part of the product reads: documents, manifests, identities of pods, probes, secrets."""
